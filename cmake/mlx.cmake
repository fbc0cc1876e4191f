# MLX as its wheel brings it: the target `mlx`. MLX_ROOT is the folder `mlx` of an unpacked wheel.
set(MANTOU_MLX_VERSION 0.32.4)
find_package(MLX CONFIG QUIET PATHS ${MLX_ROOT}/share/cmake NO_DEFAULT_PATH)
if(NOT MLX_FOUND)
  message(FATAL_ERROR "MANTOU_MLX: no MLX in MLX_ROOT (\"${MLX_ROOT}\"); scripts/run.sh --mlx fetches it")
endif()
if(NOT MLX_VERSION VERSION_EQUAL MANTOU_MLX_VERSION)
  message(FATAL_ERROR "MANTOU_MLX: MLX ${MLX_VERSION} in ${MLX_ROOT}, needed is ${MANTOU_MLX_VERSION}")
endif()
# Its headers are not ours to warn about.
get_target_property(mlx_includes mlx INTERFACE_INCLUDE_DIRECTORIES)
set_target_properties(mlx PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${mlx_includes}")

# libmantou_mlx.so, which the program opens for --backend mlx; beside the program, or in lib/mantou.
function(mantou_mlx_library)
  add_library(mantou_mlx MODULE ${CMAKE_SOURCE_DIR}/src/backends/mlx/plugin.cc)
  target_link_libraries(mantou_mlx PRIVATE mantou_backends_mlx)
  target_link_options(mantou_mlx PRIVATE -Wl,--exclude-libs,ALL)
  target_compile_definitions(mantou_mlx PRIVATE MANTOU_BUILD_ID="${MANTOU_BUILD_ID}")
  set_target_properties(mantou_mlx PROPERTIES BUILD_RPATH ${MLX_ROOT}/lib INSTALL_RPATH ${MLX_ROOT}/lib)
  mantou_compile_options(mantou_mlx)
  install(TARGETS mantou_mlx LIBRARY DESTINATION lib/mantou)
endfunction()

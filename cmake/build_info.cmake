# What `mantou version` says about the build: cli/build_info.h in the build folder, of the last configure.
set(MANTOU_GIT_REVISION "")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty
                  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE MANTOU_GIT_REVISION
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(MANTOU_BUILD_ID "${PROJECT_VERSION} ${MANTOU_GIT_REVISION} ${CMAKE_CXX_COMPILER_VERSION}")
configure_file(${CMAKE_SOURCE_DIR}/src/cli/build_info.h.in
               ${CMAKE_BINARY_DIR}/generated/cli/build_info.h)
include_directories(${CMAKE_BINARY_DIR}/generated)

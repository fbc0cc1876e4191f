// The mlx backend as a library that the program opens at run time, so that a machine without MLX
// runs the rest. Built apart from mantou_backends_mlx, which tests link directly.
#include "backends/mlx/mlx_backend.h"

extern "C" {

// The build that this library is part of.
__attribute__((visibility("default"))) const char* mantou_backend_build() {
  return MANTOU_BUILD_ID;
}

// The caller owns the result. Throws mantou::Error.
__attribute__((visibility("default"))) mantou::Backend* mantou_make_backend(int threads) {
  return mantou::on_mlx::make_mlx_backend({threads}).release();
}
}

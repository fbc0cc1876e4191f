#include "backends/mlx/mlx_arrays.h"

#include "base/error.h"

namespace mantou::on_mlx {

void evaluate(std::vector<array> arrays) {
  try {
    mx::eval(std::move(arrays));
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::kResourceExhausted, "mlx: out of memory");
  } catch (const std::exception& error) {
    fail(ErrorCode::kInternal, "mlx: {}", error.what());
  }
}

}  // namespace mantou::on_mlx

#include "backends/mlx/mlx_arrays.h"

#include "base/error.h"

namespace mantou::on_mlx {
namespace {

void run(void (*how)(std::vector<array>), std::vector<array> arrays) {
  try {
    how(std::move(arrays));
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::kResourceExhausted, "mlx: out of memory");
  } catch (const std::exception& error) {
    fail(ErrorCode::kInternal, "mlx: {}", error.what());
  }
}

}  // namespace

void evaluate(std::vector<array> arrays) { run(mx::eval, std::move(arrays)); }
void start(std::vector<array> arrays) { run(mx::async_eval, std::move(arrays)); }

}  // namespace mantou::on_mlx

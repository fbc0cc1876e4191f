#include "cli/backends.h"

#include <dlfcn.h>
#if defined(__linux__)
#include <elf.h>
#elif defined(__APPLE__)
#include <mach-o/dyld.h>
#include <climits>
#endif

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/error.h"

namespace mantou::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlugin = "libmantou_mlx.so";

fs::path program() {
#if defined(__APPLE__)
  char path[PATH_MAX];
  uint32_t size = sizeof path;
  if (_NSGetExecutablePath(path, &size) == 0) return fs::canonical(path);
  fail(ErrorCode::kIo, "the program does not know where it lies");
#else
  return fs::canonical("/proc/self/exe");
#endif
}

// Where the library of a backend may lie: beside the program or its folder (as builds have it), or
// as `cmake --install` puts it.
std::vector<fs::path> plugin_places() {
  const fs::path folder = program().parent_path();
  return {folder / kPlugin, folder.parent_path() / kPlugin,
          folder.parent_path() / "lib/mantou" / kPlugin};
}

// A library that was copied in part: loading it would end the program by a signal. The table of
// sections lies at the end of an ELF file.
bool is_cut_off([[maybe_unused]] const fs::path& file) {
#if defined(__linux__)
  Elf64_Ehdr header{};
  std::ifstream in(file, std::ios::binary);
  if (!in) return false;  // as dlopen says
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header)) return true;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;  // dlopen says so
  const uint64_t size = fs::file_size(file), table = uint64_t{header.e_shnum} * header.e_shentsize;
  return header.e_shoff > size || table > size - header.e_shoff;
#else
  return false;
#endif
}

// The backend's functions live as long as the program.
void* open_plugin() {
  for (const fs::path& place : plugin_places()) {
    std::error_code error;
    const fs::file_status status = fs::status(place, error);
    if (status.type() == fs::file_type::not_found) continue;
    if (!fs::is_regular_file(status))
      fail_param(
          ErrorCode::kUnsupported, "backend",
          "the mlx backend cannot be loaded: {} is no file ({}); scripts/run.sh --mlx builds "
          "it again",
          place.string(), error ? error.message() : "a folder or the like");
    if (is_cut_off(place))
      fail_param(ErrorCode::kUnsupported, "backend",
                 "the mlx backend cannot be loaded: {} is cut off; scripts/run.sh --mlx builds it "
                 "again",
                 place.string());
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
    fail_param(ErrorCode::kUnsupported, "backend",
               "the mlx backend cannot be loaded: {}; scripts/run.sh --mlx sets it up again",
               dlerror());
  }
  fail_param(
      ErrorCode::kUnsupported, "backend",
      "this mantou was built without the mlx backend; scripts/run.sh --mlx VERB … builds and "
      "runs one that has it, build/mlx/mantou");
}

std::unique_ptr<Backend> make_mlx_backend(int threads) {
  void* const library = open_plugin();
  using Build = const char*();
  using Make = Backend*(int threads);
  const auto build = reinterpret_cast<Build*>(dlsym(library, "mantou_backend_build"));
  const auto make = reinterpret_cast<Make*>(dlsym(library, "mantou_make_backend"));
  if (!build || !make || std::string_view(build()) != MANTOU_BUILD_ID)
    fail_param(ErrorCode::kUnsupported, "backend",
               "{} belongs to another build of mantou; scripts/run.sh --mlx builds it again",
               kPlugin);
  return std::unique_ptr<Backend>(make(threads));
}

}  // namespace

bool wants_mlx(const ModelOptions& options) {
  if (options.backend == BackendChoice::kCpu && options.exact != Exact::kNo)
    fail_param(ErrorCode::kInvalidArgument, "exact",
               "--exact is for the mlx backend, --backend says cpu; leave one of them out");
  return options.backend == BackendChoice::kMlx || options.exact != Exact::kNo;
}

std::unique_ptr<Backend> make_backend(const ModelOptions& options, int threads) {
  if (!wants_mlx(options))
    return cpu::make_cpu_backend({threads, options.compute == Compute::kF32});
  if (options.compute == Compute::kF32)
    fail_param(ErrorCode::kInvalidArgument, "compute",
               "--compute f32 is the cpu backend's; mlx computes in the model's own type");
  return make_mlx_backend(threads);
}

}  // namespace mantou::cli

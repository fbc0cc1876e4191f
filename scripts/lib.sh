# Functions that the other scripts share: messages, packages, building. Sourced by scripts that set
# -euo pipefail, not run.
# What these functions report goes to standard error; standard output belongs to the program.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build

BUILD_PACKAGES=(build-essential cmake ninja-build ccache ca-certificates libboost1.81-dev
  nlohmann-json3-dev libspdlog-dev libfmt-dev libcurl4-openssl-dev libssl-dev python3 python3-pip)
TEST_PACKAGES=(git python3-venv libgtest-dev libgmock-dev clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev)
RUST_PACKAGES=(rustc-web cargo-web)
RUST_VERSION=1.95

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif have sudo; then sudo "$@"
  else die "root (or sudo) is needed once, to install: $PACKAGES_WANTED"; fi
}

# version_at_least 1.95 1.101.0
version_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1)" = "$1" ]; }

# True when the cargo that is first in PATH is new enough.
rust_is_ready() {
  local version
  have cargo && have rustc && version=$(rustc --version 2>/dev/null) || return 1
  version=${version#rustc }
  version_at_least "$RUST_VERSION" "${version%% *}"
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q ' installed$' || echo "$package"
  done
}

# Debian's awk, mawk, reads in blocks otherwise.
AWK=(awk)
case $(awk -W version 2>&1 </dev/null) in mawk*) AWK+=(-W interactive) ;; esac

# Shows the lines of its input over each other on a terminal, nothing elsewhere.
moving_line() {
  if [ -t 2 ]; then "${AWK[@]}" '{ printf "\r\033[K%s", substr($0, 1, 80); fflush() } END { printf "\r\033[K" }' >&2
  else cat >/dev/null; fi
}

# Installs Debian packages that are not there yet.
apt_install() {
  local missing
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  PACKAGES_WANTED=$missing
  say "installing ${missing% }"
  local log=$BUILD/apt.log
  # shellcheck disable=SC2086
  if ! { as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends --no-remove $missing; } 2>&1 | tee "$log" | moving_line; then
    grep -E '^(E|W|Err)[:]' "$log" | head -5 >&2
    die "the packages above could not be installed (needs network; whole log: $log)"
  fi
}

# On other systems than Debian and its kin: says in one line what has to be there.
check_tools() {
  local tool missing=()
  for tool in cmake ninja g++ python3 "$@"; do have "$tool" || missing+=("$tool"); done
  rust_is_ready || missing+=("Rust $RUST_VERSION or newer")
  local probe='#include <boost/version.hpp>
static_assert(BOOST_VERSION >= 108100);'
  g++ -std=c++20 -fsyntax-only -x c++ - <<<"$probe" 2>/dev/null || missing+=("Boost 1.81 or newer")
  for header in fmt/format.h spdlog/spdlog.h nlohmann/json.hpp curl/curl.h openssl/ssl.h; do
    g++ -std=c++20 -fsyntax-only -x c++ - <<<"#include <$header>" 2>/dev/null || missing+=("<$header>")
  done
  [ ${#missing[@]} = 0 ] || die "missing here: $(IFS=,; echo "${missing[*]}" | sed 's/,/, /g')"
}

# ensure_packages run|test: everything that building (and testing) needs. Once done, a stamp makes the
# next call free; it is keyed by the list, so that a longer list is looked at again.
ensure_packages() {
  local packages=("${BUILD_PACKAGES[@]}")
  [ "$1" = test ] && packages+=("${TEST_PACKAGES[@]}")
  local stamp
  stamp=$BUILD/.packages-$1-$(printf '%s ' "${packages[@]}" | cksum | cut -d' ' -f1)
  [ -e "$stamp" ] && return 0
  mkdir -p "$BUILD"
  if have apt-get; then
    rust_is_ready || packages+=("${RUST_PACKAGES[@]}")
    apt_install "${packages[@]}"
    hash -r
    rust_is_ready || die "Rust $RUST_VERSION or newer is not first in PATH: $(command -v rustc || echo none)"
  elif [ "$1" = test ]; then
    check_tools clang-19 clang-tidy-19 clang-format-19
  else
    check_tools
  fi
  touch "$stamp"
}

# Ninja's output for people: one line that moves on a terminal, a line in twenty elsewhere; whatever
# is no progress (warnings, errors) as it is.
progress() {
  local terminal=0
  [ -t 2 ] && terminal=1
  "${AWK[@]}" -v terminal=$terminal -v what="$1" '
    function wipe() { if (terminal && shown) { printf "\r\033[K"; shown = 0 } }
    /^ninja: (no work to do|Entering directory)/ { next }
    /^\[[0-9]+\/[0-9]+\] Re-checking globbed/ { next }
    match($0, /^\[[0-9]+\/[0-9]+\]/) {
      split(substr($0, 2, RLENGTH - 2), n, "/")
      if (terminal) { printf "\r\033[K%s", substr(what ": " $0, 1, 100); shown = 1 }
      else if (int(20 * n[1] / n[2]) != int(20 * (n[1] - 1) / n[2]) || n[1] == 1) print what ": " substr($0, 1, 100)
      fflush(); next
    }
    { wipe(); print; fflush() }
    END { wipe() }' >&2
}

# build PRESET TARGET…: configures build/PRESET when it is not, and builds the targets.
build() {
  local preset=$1 dir=$BUILD/$1
  shift
  if [ ! -e "$dir/build.ninja" ] || [ "$ROOT/CMakePresets.json" -nt "$dir/build.ninja" ]; then
    say "configuring build/$preset"
    (cd "$ROOT" && cmake --preset "$preset") >"$BUILD/configure-$preset.log" 2>&1 || {
      grep -A6 -E '^CMake Error' "$BUILD/configure-$preset.log" | head -20 >&2
      say "configuring build/$preset failed (whole log: $BUILD/configure-$preset.log)"
      return 1
    }
    touch "$dir/build.ninja"
  fi
  ninja -C "$dir" "$@" 2>&1 | progress "$preset"
}

# The wheel of MLX for CPUs, unpacked into build/mlx-wheel: what the preset mlx builds against.
MLX_VERSION=0.32.4
ensure_mlx() {
  local folder=$BUILD/mlx-wheel
  [ -e "$folder/$MLX_VERSION" ] && return 0
  say "fetching mlx-cpu $MLX_VERSION"
  rm -rf "$folder"
  python3 -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: --target "$folder" \
    "mlx-cpu==$MLX_VERSION" >&2 || die "mlx-cpu $MLX_VERSION could not be installed (needs network and pip)"
  touch "$folder/$MLX_VERSION"
}

# The folder for models and other caches, as the program itself finds it.
cache_directory() {
  if [ -n "${MANTOU_CACHE:-}" ]; then echo "$MANTOU_CACHE"
  else echo "${XDG_CACHE_HOME:-$HOME/.cache}/mantou"; fi
}

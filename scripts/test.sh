#!/usr/bin/env bash
# usage: test.sh [--full] [stage …]
#
# Sets up what is missing, builds and runs the tests. Stages, all of them when none is named:
#   release  every test, optimised, with the real models        layers  who includes whom
#   asan     host suites under Address- and UBSanitizer          format  clang-format
#   tsan     what has threads under ThreadSanitizer              tidy    clang-tidy on changed files
#   fuzz     each fuzz target for a few seconds                  bridge  the tests of the Rust crate
#   api      a running server, through its clients' own packages
#   mlx      the mlx backend: its suite, and the bits of mlx-lm and mlx-optiq
#   soak     a server under thousands of connections and chats that break off: threads, memory, /health
# --full: long property runs, a minute for each fuzz target, sanitizers on every suite (ThreadSanitizer
# without arithmetic on one thread), clang-tidy on every file, schemathesis against the description that
# the server gives of itself, 100,000 connections and half an hour of chats. MANTOU_FUZZ_SECONDS: another
# time for each fuzz target. The last line counts what passed and failed; build/results/ holds reports
# and logs.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

RESULTS=$BUILD/results
ALL_STAGES=(layers format release api mlx soak bridge asan tsan fuzz tidy)
ASAN_SUITES=(base text hub sampling engine server cli)
TSAN_SUITES=(base engine server backends_cpu)
FUZZ_SECONDS=${MANTOU_FUZZ_SECONDS:-5}
SUITE_TIMEOUT=900
FULL=

# check NAME COMMAND…: one check that passes or fails by its exit status; its output goes to a log,
# the end of which is shown when it fails.
check() {
  local name=$1 log=$RESULTS/${1//[ \/]/-}.log status=0
  shift
  "$@" >"$log" 2>&1 || status=$?
  record "$name" $status "$log"
}

record() {
  if [ "$2" = 0 ]; then
    printf 'pass\t%s\n' "$1" >>"$RESULTS/checks.tsv"
  else
    printf 'fail\t%s\n' "$1" >>"$RESULTS/checks.tsv"
    say "FAILED (exit $2): $1"
    [ -z "${3:-}" ] || tail -40 "$3" >&2
  fi
  return 0
}

# The suites of src/ that have tests: "src/backends/cpu/x_test.cc" belongs to backends_cpu.
suites() {
  local folder
  for folder in base text hub tensor sampling engine backends/cpu models decoding runtime server cli; do
    [ -z "$(find "src/$folder" -name '*_test.cc' -print -quit 2>/dev/null)" ] || echo "${folder//\//_}"
  done
  [ -z "$(find tests/golden -name '*_test.cc' -print -quit 2>/dev/null)" ] || echo golden
}

# Those of the given suites that have tests.
present() { suites | grep -Fx -f <(printf '%s\n' "$@") || true; }

# run_suite PRESET SUITE: one gtest binary; its cases are counted from the XML report.
run_suite() {
  local preset=$1 suite=$2 binary status=0
  binary=$(find "$BUILD/$preset" -maxdepth 2 -name "${suite}_test" -type f | head -1)
  local report=$RESULTS/$preset-$suite.xml log=$RESULTS/$preset-$suite.log started=$SECONDS
  timeout --kill-after=10 $SUITE_TIMEOUT "$binary" --gtest_brief=1 --gtest_output="xml:$report" \
    >"$log" 2>&1 || status=$?
  say "  $preset/$suite: exit $status, $((SECONDS - started)) s"
  if [ $status != 0 ]; then
    tail -60 "$log" >&2
    # gtest exits with 1 for failed cases, which the report counts; anything else is a crash.
    [ $status = 1 ] && [ -e "$report" ] || record "$preset/$suite ends" $status
  fi
}

# run_suites PRESET SUITE…
run_suites() {
  local preset=$1 suite
  shift
  if build "$preset" "${@/%/_test}"; then
    for suite in "$@"; do run_suite "$preset" "$suite"; done
  else
    record "$preset builds" 1
  fi
}

# Runs a function as if --full had not been given.
without_long_runs() {
  local long=${MANTOU_TEST_FULL:-}
  unset MANTOU_TEST_FULL
  "$@"
  [ -z "$long" ] || export MANTOU_TEST_FULL=$long
}

stage_layers() {
  check "tools/check_layers" tools/check_layers
  check "tools/check_layers itself" tools/check_layers --self-test
}

# Prints the files that clang-format would change; fails when there are any.
unformatted() {
  ! clang-format-19 --dry-run "$@" 2>&1 | grep -oE '^[^: ]+\.(cc|h)' | sort -u | grep .
}

stage_format() {
  local files
  mapfile -t files < <(git ls-files --cached --others --exclude-standard 'src/*.cc' 'src/*.h' 'tests/*.cc' 'tests/*.h' 'bench/*.cc')
  check "clang-format" unformatted "${files[@]}"
}

stage_release() {
  MANTOU_TEST_MODELS=$(cache_directory)/models
  export MANTOU_TEST_MODELS
  scripts/models.sh smollm2 gemma qwen >"$RESULTS/models.log" || record "the test models are here" 1
  build test mantou || record "the program builds" 1
  local names
  mapfile -t names < <(suites)
  run_suites test "${names[@]}"
}

# The Python environment of tests/api/, made anew when its requirements change.
api_python() {
  local venv
  venv=$BUILD/venv-api-$(cksum <tests/api/requirements.txt | cut -d' ' -f1)
  if [ ! -e "$venv/ready" ]; then
    rm -rf "$BUILD"/venv-api-*
    python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check \
      -r tests/api/requirements.txt >&2 && touch "$venv/ready" || return 1
  fi
  echo "$venv/bin/python"
}

stage_api() {
  scripts/models.sh starter >/dev/null && build test mantou || { record "api: the server is here" 1; return 0; }
  run_clients api -m starter
  check "api: tests/concurrent_answers" timeout 600 tests/concurrent_answers --mantou "$BUILD/test/mantou" --model starter
  check "api: tests/operation" timeout 300 tests/operation --mantou "$BUILD/test/mantou" --model starter
  [ -z "$FULL" ] || check "api: tests/schemathesis" timeout 3600 "$(api_python)" tests/schemathesis \
    --mantou "$BUILD/test/mantou" --model starter
}

stage_soak() {
  local connections=2000 seconds=10
  [ -z "$FULL" ] || { connections=100000 seconds=1800; }
  scripts/models.sh starter >/dev/null && build test mantou || { record "soak: the server is here" 1; return 0; }
  check "tests/soak" timeout $((seconds + 1800)) tests/soak --mantou "$BUILD/test/mantou" --model starter \
    --connections $connections --seconds $seconds
}

# run_clients NAME FLAG…: `mantou serve FLAG…`, and each tests/api/*_client_test.py against it.
run_clients() {
  local name=$1 python client url='' log=$RESULTS/$1-server.log status=0
  shift
  python=$(api_python) || { record "$name: the clients' packages are here" 1; return 0; }
  "$BUILD/test/mantou" serve "$@" --port 0 >"$log" 2>&1 &
  local server=$!
  for ((i = 0; i < 600; i++)); do
    url=$(grep -oE 'http://[0-9.]+:[0-9]+' "$log" | head -1) && break
    kill -0 $server 2>/dev/null || break
    sleep 0.1
  done
  if [ -n "$url" ]; then
    for client in tests/api/*_client_test.py; do
      check "$name: $(basename "$client" .py)" timeout 600 "$python" "$client" --base-url "$url"
    done
  fi
  kill -TERM $server 2>/dev/null || true
  wait $server || status=$?
  record "$name: the server starts and ends in order" $status "$log"
}

stage_mlx() {
  local archs=llama,gemma2,gemma3,gemma4,cohere2,qwen3_moe,gpt_oss
  [ -z "$FULL" ] || archs=all
  if build test logits_driver mantou mantou_mlx; then
    run_suites test backends_mlx
    scripts/models.sh starter >/dev/null || record "the starter model is here" 1
    check "mlx: the program answers" "$BUILD/test/mantou" generate --exact -m starter -p Hello -n 3
    local tiny=$RESULTS/tiny
    check "mlx: tests/exact" timeout 3600 tests/exact --archs "$archs" --keep "$tiny"
    check "mlx: tests/exact_server" timeout 600 tests/exact_server --mantou "$BUILD/test/mantou" \
      "$tiny"/{llama/q4,gemma3/f32,qwen3_moe/q8}
    run_clients mlx -m "$tiny/llama/q4" --backend mlx
    check "mlx: refusals" tests/mlx_refusals --mantou "$BUILD/test/mantou" --model "$tiny/llama/q4"
  else
    record "mlx builds" 1
  fi
}

stage_bridge() {
  grep -rqs '#\[test\]' bridge/src bridge/tests || return 0
  check "bridge: cargo test" cargo test --quiet --release --manifest-path bridge/Cargo.toml \
    --target-dir "$BUILD/cargo"
}

stage_asan() {
  local names
  export ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  mapfile -t names < <(present "${ASAN_SUITES[@]}")
  run_suites asan "${names[@]}"
  [ -n "$FULL" ] || return 0
  mapfile -t names < <(suites | grep -vFx -f <(printf '%s\n' "${ASAN_SUITES[@]}"))
  # The long runs of arithmetic take an hour here; the release stage has them.
  without_long_runs run_suites asan "${names[@]}"
}

stage_tsan() {
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  # Arithmetic on one thread has no races to find and takes ThreadSanitizer half an hour; of the real
  # models, those tests that run whole steps on several threads.
  export GTEST_FILTER='-*Properties*:*ExtremeLogits:*AttentionShapes*:Elementwise.*:Quantize.*:Pack.*:AttentionFunctions.*'
  GTEST_FILTER+=':Models/*:GreedyAnswer.*'
  local names
  if [ -n "$FULL" ]; then mapfile -t names < <(suites); else mapfile -t names < <(present "${TSAN_SUITES[@]}"); fi
  without_long_runs run_suites tsan "${names[@]}"  # races show in short runs
  unset GTEST_FILTER
}

stage_fuzz() {
  local targets target
  mapfile -t targets < <(find src -name '*_fuzz.cc' -exec basename {} .cc \; | sort)
  [ ${#targets[@]} -gt 0 ] || return 0
  build asan "${targets[@]}" || { record "fuzz builds" 1; return 0; }
  for target in "${targets[@]}"; do
    while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    fuzz "$target" &
  done
  wait
  for target in "${targets[@]}"; do  # a shell in the background can end without a word
    grep -qP "\tfuzz $target$" "$RESULTS/checks.tsv" || record "fuzz $target ends" 1
  done
}

# One target: the seeds of tests/fuzz/seeds/TARGET, then new inputs, which build/fuzz/corpus keeps.
fuzz() {
  local target=$1 binary corpus=$BUILD/fuzz/corpus/$1 folders
  binary=$(find "$BUILD/asan" -maxdepth 2 -name "$target" -type f | head -1)
  mkdir -p "$corpus"
  folders=("$corpus")
  [ ! -d "tests/fuzz/seeds/$target" ] || folders+=("tests/fuzz/seeds/$target")
  check "fuzz $target" timeout $((FUZZ_SECONDS + 120)) "$binary" -max_total_time=$FUZZ_SECONDS -timeout=20 \
    -rss_limit_mb=3000 -artifact_prefix="$RESULTS/$target-" "${folders[@]}"
}

# Files that differ from where this branch left the main one, or on the main branch itself from the
# commit before; and what is not committed.
changed_files() {
  local base=
  for branch in origin/main main; do
    base=$(git merge-base HEAD $branch 2>/dev/null) && [ "$base" != "$(git rev-parse HEAD)" ] && break
    base=
  done
  [ -n "$base" ] || base=$(git rev-parse -q --verify HEAD~1 || true)
  [ -z "$base" ] || git diff --name-only --diff-filter=d "$base"
  git ls-files --others --exclude-standard
}

stage_tidy() {
  local files
  if [ -n "$FULL" ]; then
    mapfile -t files < <(git ls-files 'src/*.cc')
  else
    mapfile -t files < <(changed_files | grep -E '^src/.*\.cc$' | sort -u)
  fi
  [ ${#files[@]} -gt 0 ] || return 0
  build test build.ninja || { record "clang-tidy has a build to look at" 1; return 0; }
  local known=() file
  for file in "${files[@]}"; do  # fuzz targets and other systems' files are in no compile command here
    ! grep -qF "\"file\": \"$ROOT/$file\"" "$BUILD/test/compile_commands.json" || known+=("$file")
  done
  [ ${#known[@]} -gt 0 ] || return 0
  check "clang-tidy on ${#known[@]} files" xargs -0 -n1 -P"$(nproc)" clang-tidy-19 -p "$BUILD/test" --quiet \
    < <(printf '%s\0' "${known[@]}")
}

main() {
  local stages=() stage
  while [ $# -gt 0 ]; do
    case $1 in
      --full) FULL=1 ;;
      -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
      *)
        printf '%s\n' "${ALL_STAGES[@]}" | grep -qFx -- "$1" || die "no stage $1; there are ${ALL_STAGES[*]}"
        stages+=("$1")
        ;;
    esac
    shift
  done
  [ ${#stages[@]} -gt 0 ] || stages=("${ALL_STAGES[@]}")
  [[ $FUZZ_SECONDS =~ ^[1-9][0-9]*$ ]] || die "MANTOU_FUZZ_SECONDS is \"$FUZZ_SECONDS\", must be a number of seconds"
  if [ -n "$FULL" ]; then
    export MANTOU_TEST_FULL=1
    FUZZ_SECONDS=${MANTOU_FUZZ_SECONDS:-60} SUITE_TIMEOUT=3600
  fi
  ensure_packages test
  ensure_mlx
  rm -rf "$RESULTS"
  mkdir -p "$RESULTS"
  for stage in "${stages[@]}"; do
    local started=$SECONDS
    say "== $stage"
    "stage_$stage"
    say "== $stage took $((SECONDS - started)) s"
  done
  python3 scripts/summary.py "$RESULTS"
}
main "$@"

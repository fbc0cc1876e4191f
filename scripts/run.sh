#!/usr/bin/env bash
# usage: run.sh [verb …]     e.g. run.sh    run.sh chat    run.sh serve --port 9000
#
# Sets up what is missing, builds the program, fetches the starter model and runs `mantou verb …`;
# without a verb it answers a first prompt. The first run needs network and a few minutes, later runs
# need neither.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# True when the arguments run a model but name none.
wants_starter() {
  [ -z "${MANTOU_MODEL:-}" ] || return 1
  case ${1:-} in
    generate | tokenize | -*) ;;
    serve | chat | bench | inspect) [[ ${2:--} == -* ]] || return 1 ;;
    *) return 1 ;;
  esac
  local argument
  for argument in "$@"; do
    case $argument in -m | --model | -m=* | --model=* | -h | --help | --version) return 1 ;; esac
  done
}

[ $# -gt 0 ] || set -- generate -p "What is a large language model? Answer in two sentences." --stats
ensure_packages run
build release mantou
if wants_starter "$@"; then
  MANTOU_MODEL=$("$ROOT/scripts/models.sh" starter)
  export MANTOU_MODEL
fi
exec "$BUILD/release/mantou" "$@"

#!/usr/bin/env bash
# usage: run.sh [--mlx] [verb …]     e.g. run.sh    run.sh chat    run.sh serve --port 9000
#
# Sets up what is missing, builds the program, fetches the starter model and runs `mantou verb …`;
# without a verb it answers a first prompt. The first run needs network and a few minutes, later runs
# need neither. --mlx: a build with the mlx backend (build/mlx), which the verb then uses.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Which model the arguments of a verb name: a name, or nothing.
named_model() {
  while [ $# -gt 0 ]; do
    case $1 in
      -m | --model | -hf | -hfr | --hf-repo) echo "${2:-}"; return ;;
      -m=* | --model=* | -hf=* | -hfr=* | --hf-repo=*) echo "${1#*=}"; return ;;
    esac
    shift
  done
}

# True when the arguments run the starter model: the verb runs a model, and none or this is named.
wants_starter() {
  case ${1:-} in
    generate | tokenize | -*) ;;
    serve | chat | bench | inspect | fit) [[ ${2:--} == -* || $2 == starter ]] || return 1 ;;
    *) return 1 ;;
  esac
  case " $* " in *" -h "* | *" --help "* | *" --version "*) return 1 ;; esac
  # A server elsewhere has the model.
  case " $* ${MANTOU_URL:+--url=} " in " chat "*"--url"[\ =]*) return 1 ;; esac
  local model
  model=$(named_model "$@")
  [ "${model:-${MANTOU_HF_REPO:-${MANTOU_MODEL:-starter}}}" = starter ]
}

PRESET=release
if [ "${1:-}" = --mlx ]; then
  PRESET=mlx
  shift
fi
[ $# -gt 0 ] || set -- generate -p "What is a large language model? Answer in two sentences." --stats
ensure_packages run
if [ $PRESET = mlx ]; then
  ensure_mlx
  build mlx mantou mantou_mlx
  export MANTOU_BACKEND=${MANTOU_BACKEND:-mlx}
else
  build release mantou
fi
if wants_starter "$@"; then
  "$ROOT/scripts/models.sh" starter >/dev/null
  export MANTOU_MODEL=starter
fi
exec "$BUILD/$PRESET/mantou" "$@"

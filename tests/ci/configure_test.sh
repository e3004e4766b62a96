#!/usr/bin/env bash
# What cannot work fails at configure, in words that say what was found and what to do.
set -euo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

expect() {  # expect TEXT OPTION...: configuring with the options fails and says the text
  local text=$1
  shift
  if cmake -S "$source_dir" -B "$scratch/build" --fresh -G Ninja "$@" >"$scratch/out" 2>&1; then
    echo "configured in spite of: $*"
    exit 1
  fi
  tr -s '[:space:]' ' ' <"$scratch/out" | grep -qF "$text" || { cat "$scratch/out"; echo "expected: $text"; exit 1; }
}

unset REGATHER_TORCH
site="$scratch/a site"
mkdir -p "$site/torch/lib" "$site"/torch/include/torch/{headeronly,csrc/api/include/torch}
expect "no torch under '$site'" "-DREGATHER_TORCH=$site"
touch "$site/torch/lib/libtorch_cpu.so"
expect "torch '' at '$site/torch': expected 2.11.0" "-DREGATHER_TORCH=$site"
printf '#define TORCH_VERSION_%s\n' 'MAJOR 2' 'MINOR 12' 'PATCH 1' >"$site/torch/include/torch/headeronly/version.h"
expect "torch '2.12.1' at '$site/torch': expected 2.11.0" "-DREGATHER_TORCH=$site"
rm "$site/torch/include/torch/headeronly/version.h"
printf '#define TORCH_VERSION_%s\n' 'MAJOR 2' 'MINOR 6' 'PATCH 0' \
  >"$site/torch/include/torch/csrc/api/include/torch/version.h"
expect "torch '2.6.0' at '$site/torch': expected 2.11.0" "-DREGATHER_TORCH=$site"

expect "REGATHER_FUZZERS needs clang" -DREGATHER_RUNTIME=OFF -DREGATHER_FUZZERS=ON -DCMAKE_CXX_COMPILER=g++
export PATH=/usr/bin:/bin  # where no toolkit puts its compiler
unset CUDACXX CUDA_PATH
expect "there is no CUDA compiler" -DREGATHER_RUNTIME=OFF -DREGATHER_CUDA=ON
echo "configure: each refusal says why"

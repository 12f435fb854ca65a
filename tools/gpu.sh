#!/usr/bin/env bash
# What ./dev gpu runs, on a machine with an NVIDIA GPU, in the folder of the project. Needs no network and no compiler
# but for the Python extension: the C++ programs come built, in the folder $1 (made by './dev gpu').
#
#   tools/gpu.sh FOLDER [PART...]     parts: conformance device bundle bench python; all of them unless named
#
# Prints what it does, and one table last: case, Fovea ms, peer ms, ratio, error. Writes its results to $OUT, or to
# build/gpu where that is not set.
set -uo pipefail
folder=$1
shift
parts=("$@")
((${#parts[@]})) || parts=(conformance device bundle bench python)
out=${OUT:-build/gpu}
mkdir -p "$out"
say() { printf '== %s\n' "$*"; }
failed=()

packages=$(python3 -c 'import nvidia.cudnn; print(list(nvidia.cudnn.__path__)[0])' 2>/dev/null)
[[ -n ${FOVEA_CUDNN_DIR:-} ]] || export FOVEA_CUDNN_DIR=$packages/lib
export FOVEA_TEST_DEVICE=${FOVEA_TEST_DEVICE:-cuda:0} LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run_conformance() {
  say "every line of the list that engine cudnn claims, against the reference"
  local shards=12 i
  for ((i = 0; i < shards; i++)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i FOVEA_CACHE_DIR=$scratch/cache FOVEA_TEST_RECORD=$scratch/record$i \
      "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter='*OnGpu*' >"$scratch/conformance$i.log" 2>&1 &
  done
  wait
  cat "$scratch"/record* | sort -k1,1r >"$out/conformance.txt"
  cat "$scratch"/conformance*.log >"$out/conformance.log"
  printf '%s lines are right, %s are not\n' "$(grep -c ^pass "$out/conformance.txt")" "$(grep -c ^FAIL "$out/conformance.txt")"
  grep ^FAIL "$out/conformance.txt" | cut -c1-200
  grep exception "$out/conformance.log" | sort | uniq -c | head -5
  grep -q 'FAILED' "$out/conformance.log" && failed+=(conformance)
}

run_device() {
  say "threads, streams, CUDA graphs, batches, dropout"
  FOVEA_CACHE_DIR=off "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter='-*OnGpu*' 2>&1 | tee "$out/device.log" |
    grep -vE '^(Running|\[=)' || true
  grep -q 'FAILED' "$out/device.log" && failed+=(device)
  say "dropout beside the mask that cuDNN writes out itself"
  "$folder/fovea_bench_cudnn" --dropout 2>&1 | tee "$out/dropout.txt" || failed+=(dropout)
  say "the calls that Fovea.jl makes, on device memory"
  "$folder/fovea_julia_calls" cudnn 2>&1 | tee "$out/julia_calls.txt" || failed+=(julia_calls)
}

# Plans that were compiled without a GPU (plans.fovea) against plans that are built here: bit for bit.
run_bundle() {
  say "plans compiled without a GPU, against plans built here"
  local line i=0 same=0 different=0
  while IFS= read -r line; do
    i=$((i + 1))
    mkdir -p "$scratch/here$i" "$scratch/bundle$i"
    FOVEA_CACHE_DIR=off "$folder/fovea" run "$line" --device cuda:0 --engine cudnn --dump "$scratch/here$i" >/dev/null
    FOVEA_CACHE_DIR=off FOVEA_BUNDLE=$folder/plans.fovea FOVEA_VERBOSE=1 \
      "$folder/fovea" run "$line" --device cuda:0 --engine cudnn --dump "$scratch/bundle$i" >/dev/null 2>"$scratch/verbose"
    grep -q 'built a graph' "$scratch/verbose" && echo "not from the bundle: $line"
    if diff -rq "$scratch/here$i" "$scratch/bundle$i" >/dev/null; then same=$((same + 1)); else
      different=$((different + 1)) && echo "differs: $line"
    fi
  done < <(grep -v '^#' "$folder/bundle_lines.txt" | grep -v 'sq=4096')
  echo "$same of $i lines give the same bits, forward and backward" | tee "$out/bundle.txt"
  ((different == 0)) || failed+=(bundle)
}

run_bench() {
  say "engine cudnn beside cuDNN called directly"
  FOVEA_CACHE_DIR=$scratch/bench "$folder/fovea_bench_cudnn" | tee "$out/bench.txt" || failed+=(bench)
  say "what a cached call costs the host"
  FOVEA_CACHE_DIR=$scratch/bench "$folder/fovea_bench_cudnn" --host-times | tee "$out/host.txt" || failed+=(host)
  say "how long plans take to come"
  {
    echo "built:" && FOVEA_CACHE_DIR=off "$folder/fovea_bench_cudnn" --plan-times
    FOVEA_CACHE_DIR=$scratch/warm "$folder/fovea_bench_cudnn" --plan-times >/dev/null
    echo "from the disk cache:" && FOVEA_CACHE_DIR=$scratch/warm "$folder/fovea_bench_cudnn" --plan-times
    echo "from a bundle:" && FOVEA_CACHE_DIR=off FOVEA_BUNDLE=$folder/plans.fovea "$folder/fovea_bench_cudnn" --plan-times
  } | tee "$out/plans.txt"
}

run_python() {
  [[ -f tools/gpu_python.sh ]] || return 0
  bash tools/gpu_python.sh "$folder" "$out" || failed+=(python)
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for part in "${parts[@]}"; do "run_$part"; done
if [[ -f $out/bench.txt ]]; then
  say "engine cudnn beside cuDNN called directly"
  cat "$out/bench.txt"
fi
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi

#!/usr/bin/env bash
# What ./dev gpu runs, on a machine with an NVIDIA GPU, in the folder of the project. Needs no network and no compiler
# but for the Python extension: the C++ programs come built, in the folder $1 (made by './dev gpu').
#
#   tools/gpu.sh FOLDER [WHAT...]
#
# WHAT is one of these, or single parts by name; tests and bench unless told:
#   quick   our kernels beside stored times of peers, forty lines of all kinds: half a minute
#   tests   list random device sanitize cudnn bundle: most of it compiles kernels, 5 to 10 seconds of a core for each line
#           of the list and each structure of random lines
#   bench   speed first host cudnn_bench: some four minutes; builds the Python extension
#   python  the suites of fovea.torch and fovea.jax on CUDA arrays: some five minutes
#   parallel  context parallelism in two and four processes on the one GPU, over gloo (the bits of one GPU, counted bytes,
#           modules, torch's manager, a rank that dies), and decoding: a minute; python has all of its tests
#   known-bad  what engine cudnn avoids since cuDNN 9.19 gets it wrong on sm_90: whether this cuDNN does so on this GPU
#   all     all of these but known-bad (python has parallel); python_bench, the benchmarks of these two, only by name
#
# Prints what it does, and a short table last. Results go to build/gpu; if $OUT is set they are packed into it after each
# part. FOVEA_TEST_COUNT: how many random lines (5000), FOVEA_TEST_SEED: which.
set -uo pipefail
folder=$(readlink -f "$1")
shift
out=build/gpu
rm -rf "$out"
mkdir -p "$out"
say() { printf '== [%3d s] %s\n' "$SECONDS" "$*"; }
summary=() failed=()
note() { summary+=("$(printf '%-28s %s' "$1" "$2")"); }  # a row of the last table
fail() { failed+=("$1"); }

packages=$(python3 -c 'import nvidia.cudnn; print(list(nvidia.cudnn.__path__)[0])' 2>/dev/null)
[[ -n ${FOVEA_CUDNN_DIR:-} ]] || export FOVEA_CUDNN_DIR=$packages/lib
export FOVEA_TEST_DEVICE=${FOVEA_TEST_DEVICE:-cuda:0} LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cores=$(nproc)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# --- engine jit ---

# One of many processes of fovea_test_gpu. A GPU fault or a crash ends it: the next one goes on behind that line.
lines_shard() {  # a name, a filter, the number of shards, this one
  local name=$1 filter=$2 shards=$3 shard=$4 try status
  for try in 1 2 3 4 5 6 7 8; do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard FOVEA_TEST_RECORD=$scratch/$name.record.$shard \
      FOVEA_NUM_THREADS=1 FOVEA_CACHE_DIR=$scratch/cache \
      timeout 400 "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter="$filter" >>"$scratch/$name.log.$shard" 2>&1
    status=$?
    ((status <= 1)) && return
    echo "process $shard of $name ended with status $status" >>"$scratch/$name.log.$shard"
  done
}
export -f lines_shard
export folder scratch

# Lines against the reference, in as many processes as there are cores: compiling and the reference take the time.
run_lines() {  # a name, a filter, how many pieces
  local name=$1 filter=$2 shards=$3 right wrong lost
  # A few more than there are cores: some wait for kernels that another one compiles.
  seq 0 $((shards - 1)) | xargs -P $((cores + 4)) -I{} bash -c "lines_shard $name '$filter' $shards {}"
  cat "$scratch/$name".record.* | grep -v '^begin' | sort -k1,1r >"$out/jit_$name.txt"
  cat "$scratch/$name".log.* >"$out/jit_$name.log"
  right=$(grep -c ^pass "$out/jit_$name.txt")
  wrong=$(grep -c ^FAIL "$out/jit_$name.txt")
  lost=$(($(cat "$scratch/$name".record.* | grep -c ^begin) - right - wrong))
  grep ^FAIL "$out/jit_$name.txt" | cut -c1-240 | head -12
  # Those that were begun and never ended: the process died there.
  if ((lost > 0)); then
    comm -23 <(cat "$scratch/$name".record.* | sed -n 's/^begin \([^ ]*\).*/\1/p' | sort) \
      <(cut -d' ' -f2 "$out/jit_$name.txt" | sort) | head -12 |
      while read -r key; do cat "$scratch/$name".record.* | grep -m1 "^begin $key " | sed 's/^begin/died/' | cut -c1-240; done
  fi
  note "jit, $name" "$right right, $wrong wrong, $lost died"
  ((wrong + lost == 0 && right > 0)) || fail "jit_$name"
}

run_list() {
  say "engine jit: every line of the list, forward and backward, against the reference"
  run_lines list '*JitList*' $((cores * 3))
}

run_random() {
  say "engine jit: ${FOVEA_TEST_COUNT:-5000} random lines"
  run_lines random '*JitRandom*' 64
}

run_forty() {
  say "engine jit: forty lines of all kinds"
  run_lines forty '*JitSanitized*' "$cores"
}

# Each tool in four processes, all at once. Kernels come from the cache that the first run fills.
run_sanitize() {
  local sanitizer tool shard errors
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  if [[ -z $sanitizer ]]; then
    note "compute-sanitizer" "not on this machine"
    return
  fi
  say "forty lines under compute-sanitizer"
  FOVEA_CACHE_DIR=$scratch/cache "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter='*JitSanitized*' >/dev/null 2>&1
  for tool in memcheck racecheck initcheck; do
    for shard in 0 1 2 3; do
      GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$shard FOVEA_CACHE_DIR=$scratch/cache FOVEA_NUM_THREADS=1 timeout 400 \
        "$sanitizer" --tool $tool "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter='*JitSanitized*' \
        >"$scratch/$tool.$shard" 2>&1 &
    done
  done
  wait
  for tool in memcheck racecheck initcheck; do
    cat "$scratch/$tool".? >"$out/$tool.log"
    errors=$(grep -hoE '(ERROR SUMMARY|RACECHECK SUMMARY): [0-9]+' "$out/$tool.log" | awk '{sum += $NF; n++} END {print (n == 4) ? sum : "it did not end:", n + 0, "of 4;", sum + 0}')
    note "$tool" "$errors errors, $(grep -c 'FAILED  \]' "$out/$tool.log") tests failed"
    [[ $errors == 0* ]] && ! grep -q 'FAILED' "$out/$tool.log" || fail "$tool"
  done
}

# Programs of one process: what they print, and whether they end well.
shown() {  # a name for the results, then the command
  local name=$1
  shift
  "$@" 2>&1 | tee "$out/$name"
  local status=${PIPESTATUS[0]}
  ((status == 0 || status == 77)) || fail "${name%.*}"  # 77: skipped
  return "$status"
}

run_device() {
  say "threads, streams, CUDA graphs, batches, dropout"
  local shards=8 i others='-*OnGpu*:*Jit*:*KnownBad*:*jit'
  FOVEA_CACHE_DIR=off "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter="$others" >"$scratch/device.others" 2>&1 &
  for ((i = 0; i < shards; i++)); do  # each test compiles formulas of its own
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i FOVEA_CACHE_DIR=$scratch/device FOVEA_NUM_THREADS=2 timeout 400 \
      "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter='*Jit*:*jit:-*JitList*:*JitRandom*:*JitSanitized*' >"$scratch/device.$i" 2>&1 ||
      echo "process $i FAILED with status $?" >>"$scratch/device.$i" &
  done
  wait
  cat "$scratch"/device.* | tee "$out/device.log" | grep -vE '^(Running|\[=|Note|\[  PASSED|\[  SKIPPED)' || true
  local passed skipped
  passed=$(sed -n 's/.*PASSED  \] \([0-9]*\) test.*/\1/p' "$out/device.log" | awk '{n += $1} END {print n + 0}')
  skipped=$(sed -n 's/.*SKIPPED \] \([0-9]*\) test.*/\1/p' "$out/device.log" | awk '{n += $1} END {print n + 0}')
  note "threads, graphs, batches" "$passed passed, $(grep -c 'FAILED  \] [A-Z]' "$out/device.log") failed, ${skipped:-0} skipped"
  grep -q 'FAILED\|terminate\|Aborted' "$out/device.log" && fail device
  ((${passed:-0} > 0)) || fail device
  say "dropout beside the mask that cuDNN writes out itself"
  shown dropout.txt "$folder/fovea_bench_cudnn" --dropout
  say "the calls that Fovea.jl makes, on device memory"
  local engine
  for engine in jit cudnn; do shown "julia_calls_$engine.txt" "$folder/fovea_julia_calls" "$engine"; done
}

# Our kernels beside times of peers that are stored.
run_kernels() {
  say "engine jit beside stored times of its peers"
  local tier
  for tier in hopper general; do
    FOVEA_CACHE_DIR=$scratch/cache shown "kernels_$tier.txt" \
      "$folder/fovea_bench_jit" --tier "$tier" --json "$out/kernels_$tier.json"
    note "kernels, $tier" "$(grep -c ' ok ' "$out/kernels_$tier.txt") bars met, $(grep -c MISSED "$out/kernels_$tier.txt") missed (peers as stored)"
  done
}

run_host() {
  say "what a cached call costs the host"
  FOVEA_CACHE_DIR=$scratch/cache shown host.txt "$folder/fovea_bench_jit" --host-times
  note "host time of a call" "$(grep -c ' ok' "$out/host.txt") of $(grep -cE ' ok| MISSED' "$out/host.txt") within 8 and 16 us"
}

run_first() {
  say "how long the first call of a formula takes"
  {
    echo "compiled:" && FOVEA_CACHE_DIR=off "$folder/fovea_bench_jit" --first-calls
    FOVEA_CACHE_DIR=$scratch/warm "$folder/fovea_bench_jit" --first-calls >/dev/null
    echo "from the disk cache:" && FOVEA_CACHE_DIR=$scratch/warm "$folder/fovea_bench_jit" --first-calls
    if [[ -f $folder/jit_plans.fovea ]]; then
      echo "from a bundle:"
      FOVEA_CACHE_DIR=off FOVEA_BUNDLE=$folder/jit_plans.fovea "$folder/fovea_bench_jit" --first-calls
    fi
  } 2>&1 | tee "$out/first.txt"
}

# --- engine cudnn ---

run_cudnn() {
  say "every line of the list that engine cudnn claims, against the reference"
  local shards=12 i
  for ((i = 0; i < shards; i++)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i FOVEA_CACHE_DIR=$scratch/cache FOVEA_TEST_RECORD=$scratch/record$i \
      "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter='*OnGpu*' >"$scratch/conformance$i.log" 2>&1 &
  done
  wait
  cat "$scratch"/record? "$scratch"/record?? | sort -k1,1r >"$out/conformance.txt"
  cat "$scratch"/conformance*.log >"$out/conformance.log"
  note "cudnn, lines it claims" "$(grep -c ^pass "$out/conformance.txt") right, $(grep -c ^FAIL "$out/conformance.txt") wrong"
  grep ^FAIL "$out/conformance.txt" | cut -c1-200
  grep exception "$out/conformance.log" | sort | uniq -c | head -5
  grep -q 'FAILED' "$out/conformance.log" && fail conformance
}

# Each row in a process of its own: what cuDNN gets wrong may crash it.
run_known-bad() {
  say "what engine cudnn avoids, on this GPU and this cuDNN"
  local row status
  for row in narrow_inputs row_comparisons bias_beside_modifier unused_score scattered_rows; do
    FOVEA_CACHE_DIR=off timeout 60 "$folder/fovea_test_gpu" --gtest_brief=1 --gtest_filter="*KnownBad*/$row" 2>&1 | tee -a "$out/known_bad.log"
    status=${PIPESTATUS[0]}
    ((status == 1)) && fail "known-bad $row"
    if ((status > 1)); then
      note "known-bad $row" "crashed with status $status, or took a minute: wrong"
    else
      note "known-bad $row" "$(sed -n "s/^known-bad $row: //p" "$out/known_bad.log")"
    fi
  done
}

# Plans that were compiled without a GPU against plans that are built here: bit for bit.
run_bundle() {
  compare_bundle cudnn plans.fovea 'built a graph'
  [[ -f $folder/jit_plans.fovea ]] && compare_bundle jit jit_plans.fovea 'jit: compiled'
}

compare_bundle() {  # an engine, a bundle, what it logs if it builds
  local engine=$1 bundle=$2 built=$3 line i=0 same=0 different=0 more=
  [[ $engine != jit ]] || more=" deterministic=1"  # without, dQ is added up in any order
  say "engine $engine: plans compiled without a GPU, against plans built here"
  while IFS= read -r line; do
    i=$((i + 1))
    mkdir -p "$scratch/here$i" "$scratch/bundle$i"
    FOVEA_CACHE_DIR=off "$folder/fovea" run "$line$more" --device cuda:0 --engine "$engine" --dump "$scratch/here$i" >/dev/null
    FOVEA_CACHE_DIR=off FOVEA_BUNDLE=$folder/$bundle FOVEA_VERBOSE=1 \
      "$folder/fovea" run "$line$more" --device cuda:0 --engine "$engine" --dump "$scratch/bundle$i" >/dev/null 2>"$scratch/verbose"
    grep -q "$built" "$scratch/verbose" && echo "not from the bundle: $line"
    if diff -rq "$scratch/here$i" "$scratch/bundle$i" >/dev/null; then same=$((same + 1)); else
      different=$((different + 1)) && echo "differs: $line"
    fi
    rm -rf "$scratch/here$i" "$scratch/bundle$i"
  done < <(grep -v '^#' "$folder/bundle_lines.txt" | grep -v 'sq=4096')
  echo "$same of $i lines give the same bits, forward and backward" >"$out/bundle_$engine.txt"
  note "bundle of $engine" "$same of $i lines give the same bits"
  ((different == 0)) || fail "bundle_$engine"
}

run_cudnn_bench() {
  say "engine cudnn beside cuDNN called directly"
  FOVEA_CACHE_DIR=$scratch/bench shown bench.txt "$folder/fovea_bench_cudnn"
  FOVEA_CACHE_DIR=$scratch/bench shown cudnn_host.txt "$folder/fovea_bench_cudnn" --host-times
  {
    echo "built:" && FOVEA_CACHE_DIR=off "$folder/fovea_bench_cudnn" --plan-times
    FOVEA_CACHE_DIR=$scratch/warm "$folder/fovea_bench_cudnn" --plan-times >/dev/null
    echo "from the disk cache:" && FOVEA_CACHE_DIR=$scratch/warm "$folder/fovea_bench_cudnn" --plan-times
    echo "from a bundle:" && FOVEA_CACHE_DIR=off FOVEA_BUNDLE=$folder/plans.fovea "$folder/fovea_bench_cudnn" --plan-times
  } | tee "$out/plans.txt"
}

# --- Python ---

run_speed() {
  say "engine jit beside its peers, in one process"
  bash tools/gpu_python.sh "$folder" "$out" build || { fail python_build; return; }
  local tier
  for tier in hopper general; do
    PYTHONPATH=$PWD/build/gpu-python/python FOVEA_CACHE_DIR=$scratch/cache shown "speed_$tier.txt" \
      python3 -u bench/jit_gpu.py --tier "$tier" --json "$out/speed_$tier.json" ${FOVEA_BENCH_OPTIONS:-}
    note "speed, $tier" "$(tail -n 1 "$out/speed_$tier.txt" | cut -c1-150)"
  done
  cp docs/results/jit_{hopper,general}_* "$out/" 2>/dev/null
}

run_python_bench() { bash tools/gpu_python.sh "$folder" "$out" bench || fail python_bench; }

run_python() {
  bash tools/gpu_python.sh "$folder" "$out" && note "Python suites" "passed" || { note "Python suites" "FAILED" && fail python; }
}

run_parallel() {
  local log=$out/parallel.txt
  local select='same_bits or dies or torchs or tokens or bound_for'
  select+=' or (bytes and all_gather and (causal or documents)) or (test_modules and a2a and not sbhd)'
  say "context parallelism and decoding"
  FOVEA_TEST_SELECT=$select \
    shown parallel.txt bash tools/gpu_python.sh "$folder" "$out" torch/test_parallel.py torch/test_decoding.py
  note "context parallelism" "$(grep -c ^PASSED "$log") tests passed, $(grep -c '^\(FAILED\|ERROR\)' "$log") failed"
}

pack_results() {
  [[ -n ${OUT:-} ]] || return 0
  printf '%s\n' "${summary[@]}" >"$OUT/summary.txt"
  tar -czf "$OUT/gpu.tgz" -C "$out" .
}

main() {
  local what=("$@") parts=() one
  ((${#what[@]})) || what=(tests bench)
  for one in "${what[@]}"; do
    case $one in
      quick) parts+=(kernels forty) ;;
      tests) parts+=(list random device sanitize cudnn bundle) ;;
      bench) parts+=(speed first host cudnn_bench) ;;
      all) parts+=(list random device sanitize cudnn bundle speed first host cudnn_bench python) ;;
      *) parts+=("$one") ;;
    esac
  done
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  for one in "${parts[@]}"; do
    declare -F "run_$one" >/dev/null || { echo "gpu.sh: no part '$one'; see the head of this file" >&2; exit 2; }
  done
  for one in "${parts[@]}"; do
    "run_$one"
    pack_results
  done
  say "summary"
  printf '%s\n' "${summary[@]}" | tee "$out/summary.txt"
  pack_results
  if ((${#failed[@]})); then
    echo "failed: ${failed[*]}" | tee -a "$out/summary.txt"
    exit 1
  fi
}

main "$@"

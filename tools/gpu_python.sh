#!/usr/bin/env bash
# The Python part of tools/gpu.sh: builds the extension for the Python that is there, against the library of the pack,
# runs the API tests on CUDA arrays and the benchmark beside JAX.
#
#   tools/gpu_python.sh FOLDER OUT [torch] [jax]      their tests, or those of one file (torch/test_api.py); both unless named
#   tools/gpu_python.sh FOLDER OUT bench              bench/jax_peers.py: four minutes (for torch: bench/jit_gpu.py)
#   tools/gpu_python.sh FOLDER OUT build              the extension alone
#
# FOVEA_TEST_SELECT: of these tests, those that pytest's -k takes; each one's verdict is shown.
# Each file of tests is a process of its own, a long one several, all of them side by side: most of their time goes into
# compiling kernels. Logs and tables go into OUT/python.tgz.
set -uo pipefail
folder=$(readlink -f "$1") out=$(readlink -f "$2")
shift 2
parts=("$@")
((${#parts[@]})) || parts=(torch jax)
say() { printf '== %s\n' "$*"; }
failed=()
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

pack_results() {
  cp docs/results/*_gpu_* "$results/" 2>/dev/null
  rm -rf "$results/cache"
  tar -czf "$out/python.tgz" -C "$results" .
}

say "building the Python extension for $(python3 --version)"
cmake -S bindings/python -B build/gpu-python -G Ninja -DFOVEA_LIBRARY="$folder/libfovea.so.0.1" \
  -DPython_EXECUTABLE="$(command -v python3)" >"$results/build.log" 2>&1 &&
  cmake --build build/gpu-python >>"$results/build.log" 2>&1 || {
  tail -20 "$results/build.log"
  pack_results
  exit 1
}
[[ ${parts[0]} != build ]] || exit 0
# The libraries of the pack must be found by name, and pytest may come with it.
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export FOVEA_TEST_PACKAGE=$PWD/build/gpu-python/python
export PYTHONPATH=$FOVEA_TEST_PACKAGE:$folder/pylib${PYTHONPATH:+:$PYTHONPATH}
export FOVEA_CACHE_DIR=$results/cache           # cold, and shared by the processes
export XLA_PYTHON_CLIENT_PREALLOCATE=false      # a process would take most of the GPU's memory

# Of one file, shard I/N of it. Leaves a log and a status.
test_file() {
  local name=${1%.py}
  name=$results/pytest_${name//\//_}_${2/\//of}
  FOVEA_TEST_SHARD=$2 FOVEA_TEST_DEVICE=cuda timeout 300 \
    python3 -m pytest -q -rA -p no:cacheprovider ${FOVEA_TEST_SELECT:+-k "$FOVEA_TEST_SELECT"} "tests/python/$1" >"$name.log" 2>&1
  echo $? >"$name.status"
}

shards_of() {  # as many processes as its kernels need
  case $1 in
    torch/test_parallel.py) echo 10 ;;  # one for each of its modifiers, on four processes
    torch/test_decoding.py) echo 2 ;;
    torch/test_modifiers.py | jax/test_jax_values.py) echo 8 ;;
    torch/test_api.py | torch/test_views.py | jax/test_jax_captures.py | jax/test_jax_transforms.py | jax/test_jax_arguments.py) echo 3 ;;
    *) echo 1 ;;
  esac
}
export results
export -f test_file

tell_tests() {  # torch or jax: the failures, and one line for each file
  local log name
  for log in "$results/pytest_$1"_*.log; do
    name=$(basename "${log%.log}")
    [[ -z ${FOVEA_TEST_SELECT:-} ]] || grep -E '^PASSED' "$log" | cut -c1-250
    grep -E '^(FAILED|ERROR|E  )' "$log" | grep -vE '^E +(File |Traceback|[~^]+)' | cut -c1-250 | head -40
    printf '%-40s %s\n' "${name#pytest_}" "$(grep -E '(passed|failed|error|skipped).* in [0-9.]+s' "$log" | tail -n 1)"
    [[ $(<"${log%.log}.status") == [05] ]] || failed+=("${name#pytest_}")
  done
}

run_tests() {
  local part file count i
  say "the API tests of ${parts[*]} on CUDA"
  for part in "${parts[@]}"; do
    for file in $(cd tests/python && if [[ -f $part ]]; then echo "$part"; else ls "$part"/test_*.py; fi); do
      count=$(shards_of "$file")
      for ((i = 0; i < count; i++)); do echo "$file $i/$count"; done
    done
  done | sort -t/ -k3,3nr | xargs -P "$(nproc)" -L 1 bash -c 'test_file "$0" "$1"'
  for part in "${parts[@]}"; do part=${part%.py} && tell_tests "${part//\//_}"; done
}

run_benchmark() {
  say "fovea.jax beside its peers"
  timeout 240 python3 bench/jax_peers.py 2>&1 | tee "$results/bench_jax.txt" || failed+=("jax bench")
}

if [[ ${parts[0]} == bench ]]; then run_benchmark; else run_tests; fi
pack_results
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi

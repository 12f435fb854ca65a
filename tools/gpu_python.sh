#!/usr/bin/env bash
# The Python part of tools/gpu.sh: builds the extension for the Python that is there, against the library of the pack,
# runs the API tests on CUDA arrays and the benchmarks beside PyTorch and JAX.
#
#   tools/gpu_python.sh FOLDER OUT [torch] [jax]      their tests and benchmarks; both unless named
#   tools/gpu_python.sh FOLDER OUT build              the extension alone
#
# Each file of tests is a process of its own, all of them side by side. FOVEA_TEST_WRITE=1 (jax) and FOVEA_TEST_PIN=write
# (torch) pin what passes. Logs, pinned sets and tables go into OUT/python.tgz.
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
  cp tests/python/jax/cuda_set.txt tests/python/torch/cuda_cases.txt docs/results/*_gpu_* "$results/" 2>/dev/null
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

# torch/test_api.py: each case passes, or raises with the reasons; the set is pinned. Leaves a log and a status.
test_file() {
  local name=${1%.py}
  name=$results/pytest_${name//\//_}
  FOVEA_TEST_DEVICE=cuda timeout 300 python3 -m pytest -q -p no:cacheprovider "tests/python/$1" >"$name.log" 2>&1
  echo $? >"$name.status"
}
export results
export -f test_file

tell_tests() {  # torch or jax: the failures, and one line for each file
  local log name
  for log in "$results/pytest_$1"_*.log; do
    name=$(basename "${log%.log}")
    grep -E '^(FAILED|ERROR|E  )|pinned' "$log" | cut -c1-250 | head -20
    printf '%-40s %s\n' "${name#pytest_}" "$(grep -E '(passed|failed|error|skipped).* in [0-9.]+s' "$log" | tail -n 1)"
    [[ $(<"${log%.log}.status") == 0 ]] || failed+=("${name#pytest_}")
  done
}

say "the API tests of ${parts[*]} on CUDA"
for part in "${parts[@]}"; do ls "tests/python/$part"/test_*.py; done | sed 's|^tests/python/||' |
  xargs -P "$(nproc)" -I{} bash -c 'test_file {}'
for part in "${parts[@]}"; do tell_tests "$part"; done

for part in "${parts[@]}"; do
  [[ -f bench/${part}_gpu.py ]] || continue
  say "fovea.$part beside its peers"
  timeout 240 python3 "bench/${part}_gpu.py" 2>&1 | tee "$results/bench_$part.txt" || failed+=("$part bench")
done
pack_results
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi

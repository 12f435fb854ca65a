#!/usr/bin/env bash
# The Python part of tools/gpu.sh: builds the extension for the Python that is there, against the library of the pack,
# runs the API tests on CUDA tensors and the benchmarks beside PyTorch and JAX.
#
#   tools/gpu_python.sh FOLDER OUT [torch] [jax]
set -uo pipefail
folder=$(readlink -f "$1") out=$2
shift 2
parts=("$@")
((${#parts[@]})) || parts=(torch jax)
say() { printf '== %s\n' "$*"; }
failed=()

say "building the Python extension for $(python3 --version)"
cmake -S bindings/python -B build/gpu-python -G Ninja -DFOVEA_LIBRARY="$folder/libfovea.so.0.1" \
  -DPython_EXECUTABLE="$(command -v python3)" >"$out/python_build.log" 2>&1 &&
  cmake --build build/gpu-python >>"$out/python_build.log" 2>&1 || {
  tail -20 "$out/python_build.log"
  exit 1
}
# The libraries of the pack must be found by name, and pytest may come with it.
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONPATH=$PWD/build/gpu-python/python:$folder/pylib${PYTHONPATH:+:$PYTHONPATH}

test_on_gpu() {  # torch or jax: each case passes, or raises with the reasons; the set is pinned
  say "the API tests of fovea.$1 on CUDA"
  FOVEA_TEST_DEVICE=cuda timeout 240 python3 -m pytest -q -p no:cacheprovider "tests/python/$1" >"$out/pytest_$1.log" 2>&1 ||
    failed+=("$1 tests")
  grep -E '^(FAILED|ERROR)' "$out/pytest_$1.log" | cut -c1-150 | head -20
  tail -n 1 "$out/pytest_$1.log"
}

for part in "${parts[@]}"; do
  test_on_gpu "$part"
  [[ -f bench/${part}_gpu.py ]] || continue
  say "fovea.$part beside its peers"
  timeout 240 python3 "bench/${part}_gpu.py" 2>&1 | tee "$out/bench_$part.txt" || failed+=("$part bench")
done
cp docs/results/*_gpu_* "$out/" 2>/dev/null
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi

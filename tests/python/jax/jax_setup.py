"""Which device the tests of fovea.jax run on, with what package and seed. Imported before JAX is."""

import importlib.util
import os
import pathlib
import sys

# Programs of the tests are run once: XLA compiles them in a hurry. Without its emitters of fusions that takes
# half the time (9 tests of context parallelism on two busy cores: 12.1 s of CPU time, and 6.8 s without).
HURRY = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
DEVICE = os.environ.get("FOVEA_TEST_DEVICE", "cpu")
if DEVICE == "cpu":
    # By default XLA ends the process if a device waits 40 seconds for the others, and eight share a busy machine's cores.
    patience = ("--xla_cpu_collective_timeout_seconds=600 --xla_cpu_collective_call_terminate_timeout_seconds=600")
    flags = f"--xla_force_host_platform_device_count=8 {HURRY} {patience}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    os.environ["JAX_PLATFORMS"] = "cpu"
# The package of this tree (./dev build makes it) or FOVEA_TEST_PACKAGE; either is preferred to an installed one.
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, os.environ.get("FOVEA_TEST_PACKAGE", str(ROOT / "build" / "python")))


def package() -> pathlib.Path:
    """The folder of the package that is imported, whichever it is."""
    found = importlib.util.find_spec("fovea")
    assert found and found.origin, "there is no package: run ./dev build"
    return pathlib.Path(found.origin).absolute().parent


def environment() -> dict[str, str]:
    """Of a process that is to import the same package."""
    folders = [str(package().parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}


def seed() -> int:
    return int(os.environ.get("FOVEA_TEST_SEED", "20261115"))

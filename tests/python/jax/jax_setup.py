"""Which device the tests of fovea.jax run on, with what package and seed. Imported before JAX is."""

import os
import pathlib
import sys

DEVICE = os.environ.get("FOVEA_TEST_DEVICE", "cpu")
if DEVICE == "cpu":
    # Eight devices, and programs compiled in a hurry: they are run once.
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    flags += " --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    os.environ["JAX_PLATFORMS"] = "cpu"
# The package of this tree: ./dev build makes it, and an installed one stands back.
ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = pathlib.Path(os.environ.get("FOVEA_TEST_PACKAGE", ROOT / "build" / "python"))
sys.path.insert(0, str(PACKAGE))


def seed() -> int:
    return int(os.environ.get("FOVEA_TEST_SEED", "20261115"))

"""JAX on eight host devices, or on a GPU with FOVEA_TEST_DEVICE=cuda; a seed that is printed."""

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
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import pytest  # noqa: E402


def pytest_report_header():
    return f"fovea.jax: device {DEVICE}, seed {seed()}, package {PACKAGE}"


def seed() -> int:
    return int(os.environ.get("FOVEA_TEST_SEED", "20261115"))


def pytest_collection_modifyitems(items):
    try:
        import jax  # noqa: F401
    except ImportError as error:
        for item in items:
            if pathlib.Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"JAX is not installed: {error}"))


@pytest.fixture
def eight_devices():
    import jax

    if len(jax.devices()) < 8:
        pytest.skip(f"needs eight devices, there are {len(jax.devices())} (FOVEA_TEST_DEVICE={DEVICE})")
    return jax.devices()[:8]

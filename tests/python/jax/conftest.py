"""What the tests of fovea.jax share: skips that are seen, eight devices."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from jax_setup import DEVICE, package, seed  # noqa: E402  (before anything imports JAX)

import pytest  # noqa: E402


def pytest_report_header():
    return f"fovea.jax: device {DEVICE}, seed {seed()}, package {package()}"


try:
    import jax  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_jax_*.py"]  # test_present.py says so


@pytest.fixture
def eight_devices():
    import jax

    if len(jax.devices()) < 8:
        pytest.skip(f"needs eight devices, there are {len(jax.devices())} (FOVEA_TEST_DEVICE={DEVICE})")
    return jax.devices()[:8]


@pytest.fixture
def qkv():
    """Of the case "causal"."""
    from test_jax_values import IDS, expected

    return expected(IDS.index("causal"))[0][:3]

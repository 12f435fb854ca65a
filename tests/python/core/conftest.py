"""Tests of the package fovea without torch or JAX. FOVEA_TEST_SEED draws other numbers; FOVEA_TEST_PACKAGE is
another package."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(os.environ.get("FOVEA_TEST_PACKAGE", ROOT / "build" / "python"))
SEED = int(os.environ.get("FOVEA_TEST_SEED", "20261115"))
if not list(PACKAGE.glob("fovea/_core*.so")):
    raise pytest.UsageError(f"{PACKAGE} has no package fovea; run ./dev python once")
sys.path.insert(0, str(PACKAGE))


def pytest_report_header(config):
    return f"fovea: FOVEA_TEST_SEED={SEED}, package {PACKAGE}"


@pytest.fixture
def rng(request):
    """Numbers of this test: other tests do not change them."""
    import zlib

    import numpy

    return numpy.random.default_rng([SEED, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture
def in_new_process(run):
    """in_new_process(code) runs a script with the package importable and gives back what it printed."""

    def run_script(code, python=sys.executable, **variables):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), **variables}
        return run(python, "-c", code, env=environment, timeout=120).stdout

    return run_script

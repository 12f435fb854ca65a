"""Tests of fovea.torch. FOVEA_TEST_DEVICE=cuda runs them on a GPU; FOVEA_TEST_SEED draws other numbers."""

import os

import pytest

torch = pytest.importorskip("torch", reason="fovea.torch needs torch")

SEED = int(os.environ.get("FOVEA_TEST_SEED", "20261115"))


def pytest_report_header(config):
    return (f"fovea.torch: FOVEA_TEST_SEED={SEED} FOVEA_TEST_DEVICE={os.environ.get('FOVEA_TEST_DEVICE', 'cpu')}")


def pytest_configure(config):
    torch.set_num_threads(1)  # tensors are small, and other tests run beside: threads would only wait for each other


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(SEED)


@pytest.fixture(scope="session")
def device():
    return torch.device(os.environ.get("FOVEA_TEST_DEVICE", "cpu"))

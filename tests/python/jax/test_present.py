"""Without JAX the tests beside this one are not collected; this one is, and says so."""

import pytest


def test_jax_is_there():
    jax = pytest.importorskip("jax", reason="JAX is not installed: no test of fovea.jax ran")
    assert jax.__version__

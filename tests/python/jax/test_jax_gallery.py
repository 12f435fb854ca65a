"""The functions of docs/gallery.md for JAX compute what its formulas do."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_setup import ROOT

import fovea.jax

sys.path.insert(0, str(ROOT / "tools"))
from gallery_entries import ENTRIES, Sizes


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_function_is_its_formula(entry):
    sizes = Sizes(entry.length)
    q, k, v = (jax.random.normal(key, (sizes.b, sizes.s, sizes.h, 8)) for key in jax.random.split(jax.random.key(0), 3))
    captured = {name: jnp.asarray(make(sizes)) for name, _, make in entry.tensors}
    space = {"jnp": jnp, **captured}
    exec(entry.source("jax"), space)
    functions = {name: space[name] for name in ("score_mod", "mask_mod") if name in space}
    texts = {}
    for name, text in (("score_mod", entry.mod), ("mask_mod", entry.mask)):
        if text:
            texts[name] = text
            texts[name + "_tensors"] = {x: value for x, value in captured.items() if f"{x}[" in text}
    got = fovea.jax.attention(q, k, v, **functions)
    expected = fovea.jax.attention(q, k, v, **texts)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(got - fovea.jax.attention(q, k, v)).max() > 1e-3

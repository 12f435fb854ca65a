"""float64 through the reference engine: every published modifier as exact as plain JAX in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import CASES
from jax_definition import call, check, data, defined_gradients
from jax_setup import DEVICE

from fovea.jax import attention

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="float64 runs on the CPU alone")


# log1p of int32 is float32 in JAX, whatever is enabled: there the definition is the one that rounds.
@pytest.mark.parametrize("case", [c for c in CASES if c.name != "logarithm"], ids=lambda case: case.name)
def test_published_modifiers(case):
    with jax.enable_x64(True):
        (*qkv, grad_o), learned, fixed = data(case, "float64")
        # Numbers that no f32 has, so that one that is rounded on its way shows.
        learned = {name: x.astype(jnp.float64) * 1.1 for name, x in learned.items()}

        def loss(qkv, learned):
            o, lse = call(attention, case, qkv, learned, fixed, return_lse=True, engine="reference")
            return jnp.sum(o * grad_o), (o, lse)

        grads, (o, lse) = jax.grad(loss, argnums=(0, 1), has_aux=True)(qkv, learned)
        assert o.dtype == lse.dtype == jnp.float64
    wanted_o, wanted_lse, wanted_qkv, wanted_learned = defined_gradients(case, qkv, learned, fixed, grad_o)
    check("o", o, wanted_o, 1e-13)
    check("lse", lse, wanted_lse, 1e-13)
    for name, got, wanted in zip("qkv", grads[0], wanted_qkv):
        check(f"d{name}", got, wanted, 1e-13)
    for name in learned:
        check(f"d {name}", grads[1][name], wanted_learned[name], 1e-12)


@pytest.mark.parametrize("form", ("literal", "closure", "array", "text"))
def test_scales_and_numbers_are_not_rounded(form):
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(np.random.default_rng(i).standard_normal((1, 9, 2, 11))) for i in range(3))
        third, scale = 1 / 3, 11**-0.5
        number = jnp.asarray(third)
        given = {
            "literal": {"score_mod": lambda s, b, h, i, j: s * 0.3333333333333333},
            "closure": {"score_mod": lambda s, b, h, i, j: s * third},
            "array": {"score_mod": lambda s, b, h, i, j: s * number},
            "text": {"score_mod": "score * x", "score_mod_tensors": {"x": third}},
        }[form]
        got = attention(q, k, v, scale=scale, engine="reference", **given)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * scale / 3
        np.testing.assert_allclose(got, jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v), rtol=0, atol=1e-14)

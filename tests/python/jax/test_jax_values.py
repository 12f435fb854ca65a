"""Every case against the definition: outputs, lse and all gradients, compiled, and under vmap."""

import functools

import jax
import jax.numpy as jnp
from jax_cases import CASES, H
from jax_definition import DTYPE, LIMITS, call, check, data, defined_gradients, dense
from jax_setup import DEVICE
import numpy as np
import pytest

import fovea.jax
from fovea.jax import attention


IDS = [case.name for case in CASES]


@functools.cache
def expected(i: int):
    tensors, learned, fixed = data(CASES[i])
    return tensors, learned, fixed, defined_gradients(CASES[i], tensors[:3], learned, fixed, tensors[3])


def check_all(got, wanted):
    limit, grad_limit = LIMITS[DTYPE]
    o, grads, learned_grads = got
    check("o", o, wanted[0], limit)
    for name, x, y in zip("qkv", grads, wanted[2]):
        check(f"d{name}", x, y, grad_limit)
    for name, y in wanted[3].items():
        # Sums over the whole batch whose terms cancel: the limit is of their terms, which norms of sums hide.
        check(f"d_{name}", learned_grads[name], y, 10 * grad_limit)


def loss(case, fixed, grad_o, qkv, learned):
    o = call(fovea.jax.attention, case, qkv, learned, fixed)
    return jnp.sum(o.astype(jnp.float32) * grad_o.astype(jnp.float32)), o


@pytest.mark.parametrize("i", range(len(CASES)), ids=IDS)
def test_jit(i):
    tensors, learned, fixed, wanted = expected(i)
    run = jax.jit(jax.grad(functools.partial(loss, CASES[i], fixed, tensors[3]), argnums=(0, 1), has_aux=True))
    (grads, learned_grads), o = run(tensors[:3], learned)
    check_all((o, grads, learned_grads), wanted)


# Engines for GPUs give few gradients of captured arrays: there each case that learns some runs without, too.
LEARNING = [i for i, case in enumerate(CASES) if case.learned][:: 1 if DTYPE != "float32" else 4]


@pytest.mark.parametrize("i", LEARNING, ids=[IDS[i] for i in LEARNING])
def test_what_is_captured_is_not_learned(i):
    tensors, learned, fixed, wanted = expected(i)

    def total(qkv):
        return loss(CASES[i], fixed, tensors[3], qkv, learned)

    grads, o = jax.jit(jax.grad(total, has_aux=True))(tensors[:3])
    check_all((o, grads, {}), (*wanted[:3], {}))


@pytest.mark.parametrize("i", range(0, len(CASES), 7), ids=IDS[::7])
def test_not_compiled(i):
    tensors, learned, fixed, wanted = expected(i)
    o, lse = call(fovea.jax.attention, CASES[i], tensors[:3], learned, fixed, return_lse=True)
    check("o", o, wanted[0], LIMITS[DTYPE][0])
    check("lse", lse, wanted[1], LIMITS[DTYPE][0])
    assert o.shape[2] == H


# Plans for a GPU take seconds to build: there every sixth case is mapped.
MAPPED = range(0, len(CASES), 1 if DTYPE == "float32" else 6)


@pytest.mark.parametrize("i", MAPPED, ids=[IDS[i] for i in MAPPED])
def test_vmap(i):
    """Two examples: the case, and one with other values in everything that is learned."""
    case = CASES[i]
    tensors, learned, fixed, wanted = expected(i)
    other = jax.tree.map(lambda x: 1.25 * x, learned)
    wanted_other = defined_gradients(case, [tensors[0], tensors[2], tensors[1]], other, fixed, tensors[3])

    def one(q, k, v, learned):
        grads, o = jax.grad(functools.partial(loss, case, fixed, tensors[3]), argnums=(0, 1), has_aux=True)(
            (q, k, v), learned
        )
        return (o, *grads)

    k2, v2 = jnp.stack([tensors[1], tensors[2]]), jnp.stack([tensors[2], tensors[1]])
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]), learned, other)
    got = jax.jit(jax.vmap(one, (None, 0, 0, 0)))(tensors[0], k2, v2, both)
    for e, result in enumerate((wanted, wanted_other)):
        check_all(jax.tree.map(lambda x: x[e], got), result)


# --- float64 through the reference engine: every published modifier as exact as plain JAX in float64 ---


on_the_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="float64 runs on the CPU alone")


# log1p of int32 is float32 in JAX, whatever is enabled: there the definition is the one that rounds.
@on_the_cpu
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


@on_the_cpu
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
        np.testing.assert_allclose(got, dense(q, k, v, scale=scale / 3), rtol=0, atol=1e-14)

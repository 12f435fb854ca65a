"""What attention is, in plain JAX and float64; random data; the comparison."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax_cases import HKV, B, Case, D, H, S
from jax_setup import DEVICE, seed

# The limits of docs/semantics.md: relative to the norm, outputs and gradients.
LIMITS = {"float32": (2e-6, 6e-6), "bfloat16": (6e-3, 1.8e-2), "float16": (8e-4, 2.4e-3)}
DTYPE = "float32" if DEVICE == "cpu" else "bfloat16"


def data(case: Case, dtype: str = DTYPE):
    """q, k, v, grad_o, learned arrays, fixed arrays."""
    rng = np.random.default_rng([seed(), *case.name.encode()])
    shapes = [(B, S, H, D), (B, S, HKV, D), (B, S, HKV, D), (B, S, H, D)]
    tensors = [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]
    learned = {name: jnp.asarray(rng.uniform(0.5, 1.5, shape), jnp.float32) for name, shape in case.learned.items()}
    if case.sink:
        learned["sink"] = jnp.asarray(rng.standard_normal(H), jnp.float32)
    fixed = {name: jnp.asarray(x) for name, x in case.fixed(rng).items()}
    return tensors, learned, fixed


def call(attention, case: Case, tensors, learned, fixed, **more):
    """The case through one of Fovea's functions."""
    arguments = case.arguments({**fixed, **learned})
    if case.sink:
        arguments["sink"] = learned["sink"]
    if case.lengths is not None:
        arguments["kv_lengths"] = jnp.asarray(case.lengths, jnp.int32)
    return attention(*tensors, **arguments, **more)


def defined(case: Case, tensors, learned, fixed):
    """o and lse by the definition, with float64 enabled."""
    q, k, v = (jnp.asarray(x).astype(jnp.float64) for x in tensors)
    arrays = {**fixed, **{name: x.astype(jnp.float64) for name, x in learned.items()}}
    k, v = (jnp.repeat(x, H // HKV, axis=2) for x in (k, v))
    scores = scores_of(q, k)
    shape = (q.shape[0], H, q.shape[1], k.shape[1])
    places = [jax.lax.broadcasted_iota(jnp.int32, shape, d) for d in range(4)]
    modifiers = case.modifiers(arrays)
    if "score_mod" in modifiers:
        scores = modifiers["score_mod"](scores, *places).astype(jnp.float64)
    keep = scores != -jnp.inf
    if "mask_mod" in modifiers:
        keep = keep & modifiers["mask_mod"](*places)
    if case.lengths is not None:
        keep = keep & (places[3] < jnp.asarray(case.lengths)[:, None, None, None])
    masked = jnp.where(keep, scores, -jnp.inf)
    top = jax.lax.stop_gradient(jnp.max(masked, axis=-1, keepdims=True))
    if case.sink:
        top = jnp.maximum(top, jax.lax.stop_gradient(arrays["sink"])[None, :, None, None])
    top = jnp.where(top == -jnp.inf, 0.0, top)
    weights = jnp.where(keep, jnp.exp(jnp.where(keep, scores, 0.0) - top), 0.0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    if case.sink:
        total = total + jnp.exp(arrays["sink"][None, :, None, None] - top)
    empty = total == 0
    o = jnp.einsum("bhqk,bkhd->bqhd", weights / jnp.where(empty, 1.0, total), v)
    lse = jnp.where(empty, -jnp.inf, jnp.log(jnp.where(empty, 1.0, total)) + top)[..., 0]
    return o, lse


def scores_of(q, k, scale=None):
    return jnp.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)


def dense(q, k, v, modify=lambda scores: scores, scale=None):
    """Attention by a modifier of all scores at once."""
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(modify(scores_of(q, k, scale))), v)


def defined_gradients(case: Case, tensors, learned, fixed, grad_o):
    """(o, lse, gradients of q, k, v, gradients of what is learned), float64."""
    with jax.enable_x64(True):

        def loss(qkv, learned):
            o, lse = defined(case, qkv, learned, fixed)
            return jnp.sum(o * jnp.asarray(grad_o).astype(jnp.float64)), (o, lse)

        wide = [jnp.asarray(np.asarray(x, np.float64)) for x in tensors]
        more = {name: jnp.asarray(np.asarray(x, np.float64)) for name, x in learned.items()}
        grads, (o, lse) = jax.grad(loss, argnums=(0, 1), has_aux=True)(wide, more)
        return jax.tree.map(np.asarray, (o, lse, grads[0], grads[1]))


def check(name: str, got, expected, limit: float) -> None:
    """The relative error by norm; a reference of zeros and infinities must be met exactly."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape, f"{name}: shape {got.shape}, not {expected.shape}"
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, expected), err_msg=name)
    difference = np.linalg.norm(np.where(finite, got - expected, 0))
    norm = np.linalg.norm(np.where(finite, expected, 0))
    assert difference <= limit * norm, (f"{name}: relative error {difference / (norm or 1):.3g}, allowed {limit:.3g}")


def close(got, expected, rtol: float = 1e-5, atol: float = 2e-6) -> None:
    """Two ways to the same result; in bfloat16 within its rounding."""
    if DTYPE != "float32":
        rtol, atol = max(rtol, 3e-2), max(atol, 3e-2)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(
            np.asarray(x, np.float64), np.asarray(y, np.float64), rtol=rtol, atol=atol
        ),
        got,
        expected,
    )


def differs(x, y) -> bool:
    return np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)).max() > 1e-3

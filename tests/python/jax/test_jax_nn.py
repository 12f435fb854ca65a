"""jax.nn's function: its arguments and defaults, and JAX's own tests of it, restated for fovea.jax."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import causal
from jax_definition import close

import fovea
import fovea.jax

B, T, S, N, D = 2, 40, 24, 4, 32
THEIRS, OURS = jax.nn.dot_product_attention, fovea.jax.dot_product_attention


def random(shape, seed, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)


def inputs(dtype=jnp.float32, groups=1):
    """q, k, v and weights for the output."""
    shapes = ((B, T, N, D), (B, S, N // groups, D), (B, S, N // groups, D), (B, T, N, D))
    return [random(shape, i, dtype) for i, shape in enumerate(shapes)]


def compare(arguments, tensors, bias=None, limit=1e-4, vmap=False):
    """Output, residual and gradients of both functions. Rows with nothing kept are left out: there jax.nn gives the
    mean of v and a residual of about -2e38."""
    *tensors, weights = tensors

    def run(function):
        attend = functools.partial(function, return_residual=True, **arguments)
        attend = jax.vmap(attend, in_axes=(0, 0, 0, None)) if vmap else attend

        def loss(*operands):
            o, residual = attend(*operands)
            seen = jnp.where(residual > -1e4, residual, 0).astype(jnp.float32)  # has no gradient
            return jnp.sum((o * weights).astype(jnp.float32)) + jnp.sum(seen), (o, residual)

        wanted = (0, 1, 2) if bias is None else (0, 1, 2, 3)
        return jax.grad(loss, wanted, has_aux=True)(*tensors, bias)

    grads, (o, residual) = run(OURS)
    with jax.default_matmul_precision("highest"):  # on GPUs theirs would round f32 to ten bits
        expected, (wanted_o, wanted_residual) = run(THEIRS)
    assert o.dtype == wanted_o.dtype and o.shape == wanted_o.shape
    assert residual.dtype == wanted_residual.dtype and residual.shape == wanted_residual.shape
    kept = np.asarray(wanted_residual, np.float32) > -1e4
    assert np.isneginf(np.asarray(residual, np.float32)[~kept]).all()
    assert not np.asarray(o, np.float32)[~kept].any()
    for got, want in ((o, wanted_o), (residual, wanted_residual)):
        np.testing.assert_allclose(*(np.asarray(x, np.float32)[kept] for x in (got, want)), rtol=limit, atol=limit)
    lengths = arguments.get("query_seq_lengths") is not None and set(arguments) <= LENGTHS
    if kept.all() or lengths:  # rows past a length give no gradients in either
        for got, want in zip(grads, expected):
            scale = max(1.0, float(jnp.max(jnp.abs(want.astype(jnp.float32)))))
            np.testing.assert_allclose(*(np.asarray(x, np.float32) for x in (got, want)), rtol=0, atol=5 * limit * scale)


LENGTHS = {"query_seq_lengths", "key_value_seq_lengths"}
HALF = [jnp.bfloat16, jnp.float16]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("vmap", [False, True])
def test_types_and_groups(dtype, groups, vmap):
    compare({}, inputs(dtype, groups), limit=3e-2, vmap=vmap)


MODES = {
    "bias": {"bias": (1, N, T, S)},
    "bias of keys": {"bias": (B, 1, 1, S)},
    "bias of rank two": {"bias": (T, S)},
    "causal": {"is_causal": True},
    "padding": {"lengths": ((T // 2, T // 4), (S // 4, S // 2))},
    "longer than the arrays": {"lengths": ((T + 5, -1), (S + 3, 4))},
    "custom": {"mask": (1, 1, T, S)},
    "custom per head": {"mask": (B, N, T, S)},
    "custom of rank three": {"mask": (1, 1, S)},
    "causal, padding": {"is_causal": True, "lengths": ((T // 2, T // 4), (S // 4, S // 2))},
    "custom, padding": {"mask": (1, 1, T, S), "lengths": ((T // 2, T // 4), (S // 4, S // 2))},
    "bias, causal": {"bias": (1, N, T, S), "is_causal": True},
    "causal, window": {"is_causal": True, "local_window_size": (3, 2)},
    "window": {"local_window_size": (3, 0)},
    "window both ways": {"local_window_size": 30},
    "window before the query": {"local_window_size": (4, -1)},
    "window behind the query": {"local_window_size": (-1, 4)},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("name", MODES)
def test_masks_biases_and_lengths(name):
    arguments = dict(MODES[name])
    bias = arguments.pop("bias", None)
    bias = None if bias is None else random(bias, 5)
    if "mask" in arguments:
        arguments["mask"] = (random(arguments["mask"], 6) > -0.5) | (jnp.arange(S) == 0)
    if "lengths" in arguments:
        lengths = [jnp.asarray(x, jnp.int32) for x in arguments.pop("lengths")]
        arguments.update(query_seq_lengths=lengths[0], key_value_seq_lengths=lengths[1])
    compare(arguments, inputs(), bias)


@pytest.mark.parametrize("vmap", [False, True])
def test_gradient_of_a_bias_per_sequence(vmap):
    bias, weights = random((3, N, T, S), 5), random((3, T, N, D), 6)
    q, k, v = (random((3, n, N, D), i) for i, n in enumerate((T, S, S)))

    def run(function):
        def loss(bias):
            call = functools.partial(function, mask=jnp.ones((1, 1, S), bool))
            return jnp.sum((jax.vmap(call) if vmap else call)(q, k, v, bias) * weights)

        return jax.grad(loss)(bias)

    close(run(OURS), run(THEIRS), 1e-3, 2e-5)


def test_a_bias_of_bool():
    """jax.nn adds 0 or 1."""
    q, k, v = inputs()[:3]
    bias = random((1, N, T, S), 5) > 0
    close(OURS(q, k, v, bias), THEIRS(q, k, v, bias))


def test_without_batch_and_with_residual():
    q, k, v = (x[0] for x in inputs()[:3])
    got, lse = OURS(q, k, v, return_residual=True)
    wanted, residual = THEIRS(q, k, v, return_residual=True)
    close(got, wanted)
    close(lse, residual)
    close(OURS(q, k, v, implementation="xla"), wanted)
    with pytest.raises(ValueError, match="takes no modifiers"):
        OURS(q, k, v, implementation="xla", mask_mod=causal)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"mask": jnp.ones((1, 1, T, S))}, "mask: float32; must be bool"),
        ({"mask": jnp.ones((1, 2, T, S), bool)}, "mask: shape .* must broadcast"),
        ({"bias": jnp.ones((1, 2, T, S))}, "bias: shape .* must broadcast"),
        ({"query_seq_lengths": jnp.ones(3, jnp.int32)}, r"query_seq_lengths: shape \[3\]; must be \[2\]"),
        ({"key_value_seq_lengths": jnp.ones(2)}, "key_value_seq_lengths: must be one integer per sequence, got float32"),
        ({"local_window_size": (1.5, 0)}, r"local_window_size=\(1.5, 0\): must be \(left, right\)"),
        ({"implementation": "fast"}, "engine='fast': must be one of"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(fovea.InvalidArgument, match=message):
        OURS(*inputs()[:3], **changes)


def test_the_signature():
    """jax.nn's arguments as of JAX 0.10, each with its place and default; then the modifiers."""
    theirs, ours = (inspect.signature(f).parameters for f in (THEIRS, OURS))
    same = [(p.name, p.kind, p.default) for p in theirs.values() if p.name in ours]
    assert len(same) == 12
    assert [(p.name, p.kind, p.default) for p in ours.values()][:12] == same
    assert all(p.kind == p.KEYWORD_ONLY and p.default is None for p in list(ours.values())[12:])

"""Arguments beyond modifiers: layouts, packing, descriptors, mistakes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import HKV, B, D, H, S, causal, softcap
from jax_setup import DEVICE
from jax_definition import DTYPE, close, dense, differs

import fovea
import fovea.jax
from fovea.jax import SequenceDescriptor, attention


def random(shape, i=0):
    return jax.random.normal(jax.random.key(i), shape, DTYPE)


# --- layouts ---


@pytest.mark.parametrize("layout, order", [("bhsd", (0, 2, 1, 3)), ("sbhd", (1, 0, 2, 3))])
def test_layouts(layout, order, qkv):
    back = [order.index(d) for d in range(4)]
    moved = [jnp.transpose(x, order) for x in qkv]
    got = attention(*moved, layout=layout, mask_mod=causal)
    close(jnp.transpose(got, back), attention(*qkv, mask_mod=causal))


@pytest.mark.parametrize("layout", ("bs3hd", "sb3hd", "bshd_bs2hd", "sbhd_sb2hd", "t3hd", "thd_t2hd"))
def test_packed_arrays_are_views(layout):
    """Packed q, k, v give the same values, and one gradient in the same packing."""
    q, k, v = (random((B, S, H, D), i) for i in range(3))
    first = layout.startswith("sb")
    if first:
        q, k, v = (jnp.swapaxes(x, 0, 1) for x in (q, k, v))
    plain = {"layout": "sbhd" if first else "bshd"}
    if layout.startswith("t"):
        q, k, v = (x.reshape(B * S, H, D) for x in (q, k, v))
        starts = jnp.arange(B + 1, dtype=jnp.int32) * S
        plain = {"layout": "thd", "cu_seqlens_q": starts, "max_seqlen_q": S}

    def separate(q, k, v):
        return jnp.sum(jnp.sin(attention(q, k, v, mask_mod=causal, **plain)))

    more = {**plain, "layout": layout}
    if "3" in layout:
        packed = (jnp.stack([q, k, v], axis=-3),)
    else:
        packed = (q, jnp.stack([k, v], axis=-3))

    def together(*packed):
        return jnp.sum(jnp.sin(attention(*packed, mask_mod=causal, **more)))

    close(together(*packed), separate(q, k, v))
    wanted = jax.grad(separate, argnums=(0, 1, 2))(q, k, v)
    got = jax.grad(together, argnums=tuple(range(len(packed))))(*packed)
    if "3" in layout:
        close(got[0], jnp.stack(wanted, axis=-3))
    else:
        close(got[0], wanted[0])
        close(got[1], jnp.stack(wanted[1:], axis=-3))


def test_packed_sequences(qkv):
    """thd: each sequence alone; rows of no sequence are zeros; lse is [H, T]."""
    lengths = (5, 0, 17)
    starts = jnp.asarray(np.cumsum([0, *lengths]), jnp.int32)
    total = sum(lengths) + 3
    q, k, v = random((total, H, D)), random((total, HKV, D), 1), random((total, HKV, D), 2)
    o, lse = attention(q, k, v, layout="thd", cu_seqlens_q=starts, max_seqlen_q=20, mask_mod=causal, return_lse=True)
    assert lse.shape == (H, total)
    for first, length in zip(np.cumsum([0, *lengths]), lengths):
        part = slice(first, first + length)
        close(o[part], attention(q[part][None], k[part][None], v[part][None], mask_mod=causal)[0])
    assert not np.asarray(o[sum(lengths) :]).any()


def test_order_is_bias_then_modifier(qkv):
    bias = random((B, H, S, S), 4)
    got = attention(*qkv, bias=bias, score_mod=softcap(2.0))
    want = attention(*qkv, score_mod=lambda s, b, h, q, k: 2.0 * jnp.tanh((s + bias[b, h, q, k]) / 2.0))
    close(got, want)


# --- sequences ---


def test_segments_and_positions(qkv):
    lengths = np.array([[10, 15], [32, 0], [1, 1], [20, 12]])
    starts = np.array([[0, 12], [0, 32], [3, 9], [0, 20]])
    ids, places = np.zeros((B, S), np.int32), np.zeros((B, S), np.int32)
    for b in range(B):
        for number, (first, length) in enumerate(zip(starts[b], lengths[b]), 1):
            ids[b, first : first + length] = number
            places[b, first : first + length] = np.arange(length)
    described = SequenceDescriptor.from_segment_ids_and_pos(jnp.asarray(ids), jnp.asarray(places))
    slopes = jnp.arange(H) * 0.1
    got = attention(
        *qkv,
        sequence_descriptor=described,
        score_mod=lambda s, b, h, q, k: s + slopes[h] * (k - q) * 0.5 + 0.01 * q,
        mask_mod=causal,
    )
    kept = (ids[:, :, None] == ids[:, None, :]) & (ids != 0)[:, :, None]
    kept &= places[:, :, None] >= places[:, None, :]
    distance = jnp.asarray(places[:, None, :] - places[:, :, None], jnp.float32)
    bias = (slopes[None, :, None, None] * distance[:, None] * 0.5 + 0.01 * jnp.asarray(places)[:, None, :, None])
    want = attention(*qkv, bias=bias, dense_mask=jnp.asarray(kept)[:, None])
    close(got, want)
    text = attention(*qkv, sequence_descriptor=described, mask_mod="causal")
    close(text, attention(*qkv, dense_mask=jnp.asarray(kept)[:, None]))
    offsets = SequenceDescriptor.from_seqlens_and_offsets(jnp.asarray(lengths), jnp.asarray(starts), S)
    close(attention(*qkv, sequence_descriptor=offsets, mask_mod="causal"), text)
    derived = SequenceDescriptor.from_segment_ids_and_pos(jnp.asarray(ids))
    np.testing.assert_array_equal(np.where(ids, derived.segment_pos[0], 0), places)


def test_a_bias_goes_by_rows_also_where_there_are_positions(qkv):
    ids = jnp.asarray(np.repeat([[1, 2]], B, axis=0).repeat(S // 2, axis=1), jnp.int32)
    bias = random((B, H, S, S), 4)
    described = SequenceDescriptor.from_segment_ids_and_pos(ids)
    got = attention(*qkv, bias=bias, sequence_descriptor=described)
    close(got, attention(*qkv, bias=bias, dense_mask=(ids[:, :, None] == ids[:, None, :])[:, None]))


def test_lengths(qkv):
    lengths = jnp.asarray([32, 5, 1, 0], jnp.int32)
    got = attention(*qkv, sequence_descriptor=SequenceDescriptor.from_seqlens(lengths))
    close(got, attention(*qkv, q_lengths=lengths, kv_lengths=lengths))
    assert not np.asarray(got[3]).any() and not np.asarray(got[1, 5:]).any()
    listed = lengths.tolist()
    close(got, attention(*qkv, sequence_descriptor=SequenceDescriptor.from_seqlens(listed)))
    close(got, attention(*qkv, q_lengths=listed, kv_lengths=lengths))
    pair = SequenceDescriptor.from_seqlens(([32] * 4, listed))
    close(attention(*qkv, sequence_descriptor=pair), attention(*qkv, kv_lengths=listed))


@pytest.mark.parametrize("rng", ("portable", "engine"))
def test_seeds_of_every_kind(rng, qkv):
    key = jax.random.key(3)
    drop = functools.partial(attention, *qkv, dropout_rate=0.4, dropout_rng=rng)
    close(drop(dropout_seed=key), drop(dropout_seed=jax.random.key_data(key)))
    assert differs(drop(dropout_seed=1), drop(dropout_seed=2))
    close(drop(dropout_seed=5), drop(dropout_seed=jnp.asarray([5, 0], jnp.uint32)))
    close(drop(dropout_seed=jnp.asarray(-3)), drop(dropout_seed=-3))
    with jax.enable_x64(True):
        close(drop(dropout_seed=jnp.asarray(2**40 + 7)), drop(dropout_seed=2**40 + 7))
    assert differs(drop(dropout_seed=2**40 + 7), drop(dropout_seed=7))


# --- mistakes: said while JAX traces; those that all front ends share: core/test_py_request.py ---


PACKED = {"layout": "thd", "cu_seqlens_q": jnp.zeros(2, int)}
OF_FLOATS = SequenceDescriptor.from_segment_ids_and_pos(jnp.ones((B, S)))
MISTAKES = {
    "tensors of no derivative": (
        {"score_mod": "score", "score_mod_bprop_tensors": {"x": 1.0}},
        "score_mod_bprop_tensors: given without score_mod_bprop",
    ),
    "formula": ({"score_mod": "scor * 2"}, "did you mean 'score'"),
    "unused name": (
        {"score_mod": "score", "score_mod_tensors": {"x": 1.0}},
        "score_mod_tensors: 'x' is captured by no formula",
    ),
    "what is not captured": ({"mask_mod": "doc[b, q] == 1"}, r"unknown tensor 'doc' \(give it as mask_mod_tensors={'doc': ...}\)"),
    "no seed": ({"dropout_rate": 0.1}, "needs dropout_seed"),
    "seed": ({"dropout_rate": 0.1, "dropout_seed": 1.5}, "dropout_seed: float"),
    "seeds": ({"dropout_rate": 0.1, "dropout_seed": [1, 2]}, r"dropout_seed: int.* \[2\]; must be a number"),
    "bias": ({"bias": jnp.ones((1, H, 3, S))}, "bias: shape .* must broadcast to"),
    "mask type": ({"dense_mask": jnp.ones((1, 1, S, S))}, "dense_mask: float.*; must be bool"),
    "scale as text": ({"scale": "0.1"}, "scale='0.1': must be a finite number"),
    "scale that is no number": ({"scale": float("nan")}, "scale=nan: must be a finite number"),
    "complex scale": ({"scale": 1j}, "scale=1j: must be a finite number"),
    "array of complex scales": ({"scale": jnp.array(1j)}, "scale: complex64; must be a real number"),
    "segments": ({"sequence_descriptor": OF_FLOATS}, "segment_ids: float32; must be int32"),
    "lengths": ({"kv_lengths": jnp.ones(B)}, r"kv_lengths: must be one integer per sequence, got float32 \[4\]"),
    "offset": ({"kv_offset": jnp.array([1])}, r"kv_offset: shape \[1\]"),
}
OTHER_MISTAKES = {
    "missing v": (lambda q, k, v: attention(q, k), "v: missing, but layout bshd takes q, k, v"),
    "packed": (lambda q, k, v: attention(q, layout="bs3hd"), "qkv: shape .* must be 3"),
    "features of packed keys": (lambda q, k, v: beside(q, jnp.ones((B, S, 2, 2, 32), q.dtype)), "k: last extent .* as that of q"),
    "batch of packed keys": (lambda q, k, v: beside(q, jnp.ones((2, S, 2, 2, 16), q.dtype)), "sequences; must be"),
    "a bound": (lambda *qkv: attention(*(x[0] for x in qkv), **PACKED), "max_seqlen_q: layout thd needs it"),
    "a traced bound": (
        lambda *qkv: attention(*(x[0] for x in qkv), **PACKED, max_seqlen_q=jnp.sum(qkv[0].astype(int))),
        "max_seqlen_q: traced",
    ),
    "rate": (
        lambda *a: attention(*a, dropout_rate=jnp.mean(a[0]), dropout_seed=1),
        "dropout_rate: must be a number that is not traced",
    ),
    "lengths of jax.nn": (
        lambda *a: fovea.jax.dot_product_attention(*a, query_seq_lengths=jnp.array([1])),
        r"query_seq_lengths: shape \[1\]; must be \[4\]",
    ),
    "context": (
        lambda *a: fovea.jax.context_attention(*a, axis_name="s", order="random"),
        "order='random': must be one of contiguous, striped, zigzag",
    ),
    "context outside of shard_map": (
        lambda *a: fovea.jax.context_attention(*a, axis_name="s"),
        "axis_name='s': is no axis here; call context_attention inside jax.shard_map",
    ),
}


def beside(q, kv):
    return attention(q, kv, layout="bshd_bs2hd")


@pytest.mark.parametrize("name", [*MISTAKES, *OTHER_MISTAKES])
def test_mistakes(name, qkv):
    changes, text = (MISTAKES | OTHER_MISTAKES)[name]
    function = changes if callable(changes) else functools.partial(attention, **changes)
    with pytest.raises(fovea.InvalidArgument, match=text):
        jax.eval_shape(function, *qkv)


def test_other_refusals(qkv):
    words = "the captured 't' has the type uint32; formulas load float32"
    with pytest.raises(fovea.TraceError, match=words):
        attention(*qkv, score_mod="score * t[h]", score_mod_tensors={"t": jnp.ones(H, jnp.uint32)})

    def by_hand(scale):
        return jnp.sum(attention(*qkv, scale=scale, score_mod="score", score_mod_bprop=lambda g, s, b, h, q, k: g))

    with pytest.raises(fovea.Unsupported, match="scale has no gradient beside score_mod_bprop"):
        jax.eval_shape(jax.grad(by_hand), 0.5)


@pytest.mark.skipif(DEVICE != "cpu", reason="there is a GPU here")
def test_gpu_where_there_is_none(qkv):
    """Refused while JAX traces: with reasons if this build has the engine, by name if it does not."""
    asked = (
        lambda *a: attention(*a, engine="cudnn"),
        lambda *a: fovea.jax.dot_product_attention(*a, implementation="cudnn"),
    )
    for function in asked:
        with pytest.raises((fovea.Unsupported, ValueError), match="cudnn|cpu"):
            jax.eval_shape(function, *qkv)


def test_float64_runs_on_the_reference_engine():
    with jax.enable_x64(True):
        q, k, v = (jnp.asarray(np.random.default_rng(i).standard_normal((1, 5, 2, 4))) for i in range(3))
        if DEVICE == "cpu":
            got = attention(q, k, v, engine="reference")
            np.testing.assert_allclose(got, dense(q, k, v), rtol=1e-12, atol=1e-12)
            third = attention(q, k, v, score_mod="score * 0.3333333333333333", engine="reference")
            np.testing.assert_allclose(third, dense(q, k, v, scale=0.5 / 3), rtol=1e-12, atol=1e-12)
        with pytest.raises(fovea.Unsupported, match="float64|f64|engine"):
            attention(q, k, v)


@pytest.mark.parametrize("rows, shape", [((0, 3), (0, 8, 2, 4)), ((2, 3), (2, 0, 2, 4)), ((2, 4), (2, 4, 0, 8))])
def test_nothing_to_do(rows, shape):
    q, k = jnp.ones((*rows, *shape[2:]), DTYPE), jnp.ones(shape, DTYPE)
    assert attention(q, k, k).shape == q.shape
    o, grads = jax.value_and_grad(lambda q: jnp.sum(attention(q, k, k)))(q)
    assert o == 0 and not np.asarray(grads).any()


def test_first_calls_are_verified():
    """verify=True: the reference engine has a plan for a sample of the forward and of the backward."""
    q = jax.random.normal(jax.random.key(0), (2, 33, 4, 16), jnp.float32)
    before = fovea.cache_stats()["builds"]
    jax.grad(lambda q: fovea.jax.attention(q, q, q, score_mod="sin(score) * cos(score / 3)", verify=True).sum())(q)
    assert fovea.cache_stats()["builds"] - before == 4

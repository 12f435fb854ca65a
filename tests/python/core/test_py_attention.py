"""fovea.attention against the definition: formulas, layouts, lengths, types."""

import pickle

import dense_numpy as dense
import numpy as np
import pytest

import fovea

B, H, S, D = 2, 4, 33, 16


@pytest.fixture
def qkv(rng):
    return [rng.standard_normal((B, H, S, D)).astype(np.float32) for _ in range(3)]


SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
DOCUMENTS = np.sort(np.random.default_rng(3).integers(0, 4, (B, S))).astype(np.int32)
BIAS = np.random.default_rng(4).standard_normal((H, S, S)).astype(np.float32)

CASES = {
    "none": ({}, {}),
    "causal": ({"is_causal": True}, {"mask": lambda b, h, q, k: q >= k}),
    "causal as text": ({"mask_mod": "causal"}, {"mask": lambda b, h, q, k: q >= k}),
    "window": ({"window_size": (5, 2)}, {"mask": lambda b, h, q, k: (q - k <= 5) & (k - q <= 2)}),
    "causal window": (
        {"window_size": (7, -1), "is_causal": True},
        {"mask": lambda b, h, q, k: (q - k <= 7) & (q >= k)},
    ),
    "symmetric window": ({"window_size": 3}, {"mask": lambda b, h, q, k: abs(q - k) <= 3}),
    "scale": ({"scale": 0.5}, {"scale": 0.5}),
    "scale of zero": ({"scale": 0.0}, {"scale": 0.0}),
    "softcap": (
        {"score_mod": "cap * tanh(score / cap)", "scalars": {"cap": 2.0}},
        {"mod": lambda s, b, h, q, k: 2 * np.tanh(s / 2)},
    ),
    "alibi": (
        {"score_mod": "score + slopes[h] * (k - q)", "tensors": {"slopes": SLOPES}},
        {"mod": lambda s, b, h, q, k: s + SLOPES[h] * (k - q)},
    ),
    "bias": (
        {"score_mod": "score + bias[h, q, k]", "tensors": {"bias": BIAS}, "is_causal": True},
        {"mod": lambda s, b, h, q, k: s + BIAS[h, q, k], "mask": lambda b, h, q, k: q >= k},
    ),
    "documents": (
        {"mask_mod": "doc[b, q] == doc[b, k]", "tensors": {"doc": DOCUMENTS}},
        {"mask": lambda b, h, q, k: DOCUMENTS[b, q] == DOCUMENTS[b, k]},
    ),
    "whole scalar": (
        {"mask_mod": "k < n || q >= k", "scalars": {"n": 5}},
        {"mask": lambda b, h, q, k: (k < 5) | (q >= k)},
    ),
    "program": (
        {"score_mod": fovea.formula("score * t", mask="causal", scalars={"t": 0.5})},
        {"mod": lambda s, b, h, q, k: s * 0.5, "mask": lambda b, h, q, k: q >= k},
    ),
    "program with another value": (
        {
            "score_mod": fovea.formula("score * t", scalars={"t": 0.5}),
            "scalars": {"t": 3.0},
            "mask_mod": fovea.formula("q >= k"),
        },
        {"mod": lambda s, b, h, q, k: s * 3, "mask": lambda b, h, q, k: q >= k},
    ),
    "offset": (
        {"mask_mod": "q - 7 >= k", "q_offset": 7, "score_mod": "score + 0.1 * q"},
        {"mod": lambda s, b, h, q, k: s + 0.1 * (q + 7), "mask": lambda b, h, q, k: q >= k},
    ),
    "offset of each sequence": (
        {"is_causal": True, "q_offset": np.array([0, 4])},
        {"mask": lambda b, h, q, k: q + np.where(b == 1, 4, 0) >= k},
    ),
    "shard of heads": (
        {
            "score_mod": "score + slopes[h] * H",
            "h_offset": 4,
            "h_global": 8,
            "tensors": {"slopes": np.tile(SLOPES, 2)},
        },
        {"mod": lambda s, b, h, q, k: s + SLOPES[h] * 8},
    ),
    "nothing kept": ({"mask_mod": "q > 3 && false"}, {"mask": lambda b, h, q, k: np.zeros((1, 1, 1, 1), bool)}),
    "rows with nothing": ({"mask_mod": "q >= 4"}, {"mask": lambda b, h, q, k: q >= 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_definition(qkv, name):
    options, definition = CASES[name]
    o, lse = fovea.attention(*qkv, return_lse=True, **options)
    wanted, wanted_lse = dense.attention(*qkv, **definition)
    assert dense.relative_error(o, wanted) < 2e-6
    assert np.array_equal(np.isfinite(lse), np.isfinite(wanted_lse))
    there = np.isfinite(lse)
    assert dense.relative_error(lse[there], wanted_lse[there]) < 2e-6


def test_sinks_join_the_sum(qkv, rng):
    sinks = rng.standard_normal(H).astype(np.float32)
    o, lse = fovea.attention(*qkv, sinks=sinks, return_lse=True)
    wanted, wanted_lse = dense.attention(*qkv, sinks=sinks)
    assert dense.relative_error(o, wanted) < 2e-6 and dense.relative_error(lse, wanted_lse) < 2e-6


def test_row_max_and_max_logit(qkv):
    o, lse, row_max, max_logit = fovea.attention(*qkv, return_lse=True, return_row_max=True, return_max_logit=True)
    score = np.einsum("bhqd,bhkd->bhqk", *(x.astype(np.float64) for x in qkv[:2])) / 4
    assert np.allclose(row_max, score.max(-1), atol=1e-5)
    assert np.allclose(max_logit, score.max((0, 2, 3)), atol=1e-5)
    assert max_logit.shape == (H,) and lse.shape == (B, H, S) and o.shape == (B, H, S, D)


@pytest.mark.parametrize(
    "dtype, limit", [("float32", 2e-6), ("float16", 8e-4), ("bfloat16", 6e-3), ("float64", 1e-14)]
)
def test_every_type(qkv, dtype, limit):
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    half = [x.astype(dtype) for x in qkv]
    o = fovea.attention(*half, is_causal=True, engine="reference" if dtype == "float64" else None)
    assert o.dtype == half[0].dtype
    assert dense.relative_error(o, dense.attention(*half, mask=lambda b, h, q, k: q >= k)[0]) < limit


@pytest.mark.parametrize("scale", (None, 0.1))
def test_numbers_meet_float64_as_they_are(rng, scale):
    """The scale, scalars and literals, folded ones too: none is rounded to f32."""
    q, k, v = (rng.standard_normal((2, 2, 13, 11)) for _ in range(3))
    given = {"score_mod": "score * x + 0.1 * tanh(score / 0.7) * (2 / 3)", "scalars": {"x": 1 / 3}}
    wanted, _ = dense.attention(
        q, k, v, mod=lambda s, b, h, q, k: s / 3 + 0.1 * np.tanh(s / 0.7) * (2 / 3), scale=scale
    )
    assert dense.relative_error(fovea.attention(q, k, v, engine="reference", scale=scale, **given), wanted) < 1e-14
    program = fovea.formula(given["score_mod"], scalars=given["scalars"])  # whose text is printed in f32
    program = pickle.loads(pickle.dumps(program))
    assert dense.relative_error(fovea.attention(q, k, v, engine="reference", scale=scale, score_mod=program), wanted) < 1e-14


@pytest.mark.parametrize("layout, order", [("bhsd", (0, 1, 2, 3)), ("bshd", (0, 2, 1, 3)), ("sbhd", (2, 0, 1, 3))])
def test_layouts(qkv, layout, order):
    placed = [np.ascontiguousarray(x.transpose(order)) for x in qkv]
    o = fovea.attention(*placed, layout=layout, is_causal=True)
    wanted = dense.attention(*qkv, mask=lambda b, h, q, k: q >= k)[0].transpose(order)
    assert o.shape == placed[0].shape and dense.relative_error(o, wanted) < 2e-6


def test_groups_of_heads_and_other_lengths(rng):
    q = rng.standard_normal((1, 6, 9, 8)).astype(np.float32)
    k, v = (rng.standard_normal((1, 2, 21, n)).astype(np.float32) for n in (8, 12))
    slopes = np.arange(6, dtype=np.float32) / 8
    o = fovea.attention(
        q, k, v, score_mod="score + slopes[h] * k", mask_mod="causal_bottom_right", tensors={"slopes": slopes}
    )
    # h is the head of q, also if several share keys.
    mod = lambda s, b, h, i, j: s + slopes[h] * j  # noqa: E731
    wanted = dense.attention(q, k, v, mod=mod, mask=lambda b, h, i, j: i + 12 >= j)[0]
    assert o.shape == (1, 6, 9, 12) and dense.relative_error(o, wanted) < 2e-6


def test_lengths_end_sequences(qkv):
    lengths = np.array([5, 33])
    o, lse = fovea.attention(*qkv, seq_lens=lengths, return_lse=True)
    wanted, _ = dense.attention(*qkv, mask=lambda b, h, q, k: (k < lengths[b]) & (q < lengths[b]))
    assert dense.relative_error(o, wanted) < 2e-6
    assert np.all(o[0, :, 5:] == 0) and np.all(lse[0, :, 5:] == -np.inf)
    keys_only = fovea.attention(*qkv, seq_lens=(None, lengths))
    assert (dense.relative_error(keys_only, dense.attention(*qkv, mask=lambda b, h, q, k: k < lengths[b])[0]) < 2e-6)


def test_packed_sequences(rng):
    starts = [0, 7, 7, 20]
    q, k, v = (rng.standard_normal((22, 2, 8)).astype(np.float32) for _ in range(3))
    o, lse = fovea.attention(q, k, v, layout="thd", cu_seqlens=np.array(starts), is_causal=True, return_lse=True)
    assert lse.shape == (2, 22) and np.all(o[20:] == 0)
    for first, last in zip(starts, starts[1:]):
        if first == last:
            continue
        one = [x[first:last].transpose(1, 0, 2)[None] for x in (q, k, v)]
        wanted = dense.attention(*one, mask=lambda b, h, i, j: i >= j)[0][0].transpose(1, 0, 2)
        assert dense.relative_error(o[first:last], wanted) < 2e-6


def test_dropout_is_the_same_for_a_seed_and_keeps_the_mean(qkv):
    drop = lambda seed, p=0.5: fovea.attention(*qkv, dropout_p=p, seed=seed)  # noqa: E731
    assert np.array_equal(drop(1), drop(1)) and not np.array_equal(drop(1), drop(2))
    assert np.array_equal(drop(-1), drop(2**64 - 1))
    ones = np.ones_like(qkv[2])
    weights = fovea.attention(qkv[0], qkv[1], ones, dropout_p=0.5, seed=7)
    assert abs(weights.mean() - 1) < 0.05


def test_deterministic_gives_the_same_bits(qkv):
    first, second = (fovea.attention(*qkv, deterministic=True, threads=n) for n in (1, 2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("shape", [(0, 4, 8, 16), (2, 4, 0, 16), (2, 0, 8, 16)])
def test_sizes_of_zero(shape):
    empty = np.ones(shape, np.float32)
    assert fovea.attention(empty, empty, empty).shape == shape


def test_no_keys_give_zeros(rng):
    q = rng.standard_normal((1, 2, 3, 4)).astype(np.float32)
    nothing = np.ones((1, 2, 0, 4), np.float32)
    assert np.array_equal(fovea.attention(q, nothing, nothing), np.zeros_like(q))

"""What formulas capture and how: names, types, arrays of NumPy, and biases beside offsets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import B, H, S, SoftcapGraph, causal, softcap
from jax_definition import close

from fovea.jax import SequenceDescriptor, TraceError, attention, dot_product_attention
from fovea.jax._call import problem_lines

SLOPES = np.linspace(0.1, 1.0, H)
GAIN = 0.5


def random(shape, i=0):
    return jax.random.normal(jax.random.key(i), shape)


# --- arrays of NumPy ---


def by_a_loop(score, weights=np.array([1.0, 2.0])):
    for weight in weights:
        score = score + float(weight) * 0.1
    return score


NUMPY = {
    "global": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "closure": (lambda slopes: lambda s, b, h, i, j: s + slopes[h] * (j - i))(SLOPES.astype(np.float32)),
    "partial": functools.partial(lambda slopes, s, b, h, i, j: s + slopes[h] * (j - i), SLOPES),
}


@pytest.mark.parametrize("name", NUMPY)
def test_arrays_of_numpy_are_captured(name, qkv):
    table = jnp.asarray(SLOPES)
    close(
        attention(*qkv, score_mod=NUMPY[name]),
        attention(*qkv, score_mod=lambda s, b, h, i, j: s + table[h] * (j - i)),
    )


def test_arrays_that_python_reads_stay_as_they_are(qkv):
    close(
        attention(*qkv, score_mod=lambda s, b, h, i, j: by_a_loop(s) * 0.5),
        attention(*qkv, score_mod=lambda s, b, h, i, j: (s + 0.3) * 0.5),
    )


def test_numbers_of_functions_inside_are_bound_per_call(qkv):
    (line,) = problem_lines(
        lambda q: attention(q, *qkv[1:], score_mod=lambda s, b, h, i, j: (lambda x: x * GAIN)(s)), qkv[0]
    )
    assert "scalar=" in line, line


@pytest.mark.parametrize("table", ([1.0, 2.0, 3.0, 4.0], {"t": SLOPES}), ids=("a list", "inside of a dict"))
def test_tables_that_can_not_be_indexed(table, qkv):
    rows = table if isinstance(table, list) else type("Holder", (), table)
    with pytest.raises(TraceError, match=r"score_mod: Python needs a value .* jnp.asarray\(table\)"):
        attention(*qkv, score_mod=lambda s, b, h, i, j: s + (rows if isinstance(rows, list) else rows.t)[h])


def test_numbers_for_callbacks(qkv):
    """Python's numbers and arrays of rank 0, as Transformer Engine takes them; each with its gradient."""
    callbacks = SoftcapGraph()

    def loss(cap, **more):
        tensors = {"softcap": cap}
        return jnp.sum(attention(*qkv, score_mod=callbacks.forward, score_mod_tensors=tensors, **more) ** 2)

    def wanted(cap):
        return jnp.sum(attention(*qkv, score_mod=softcap(cap)) ** 2)

    close(loss(0.8), wanted(0.8))
    close(loss(np.float32(0.8)), wanted(0.8))
    close(loss(jnp.float32(0.8), score_mod_bprop=callbacks.backward), wanted(0.8))
    close(jax.grad(loss)(0.8), jax.grad(wanted)(0.8), 1e-4, 1e-4)


@pytest.mark.parametrize("score_mod", (None, softcap(0.8), lambda s, b, h, q, k: s * (q - k) + SLOPES[h]))
@pytest.mark.parametrize("scale", (0.3, 0.0))
def test_the_gradient_of_scale(score_mod, scale, qkv):
    """As that of a factor that the modifier has; under jit and vmap too."""
    weights = jax.random.normal(jax.random.key(9), qkv[0].shape)

    def own(scale):
        return jnp.sum(attention(*qkv, scale=scale, score_mod=score_mod, mask_mod="causal") * weights)

    def by_formula(factor):
        mod = score_mod or (lambda s, *_: s)
        scaled = lambda s, b, h, q, k: mod(s * factor, b, h, q, k)  # noqa: E731
        return jnp.sum(attention(*qkv, scale=1.0, score_mod=scaled, mask_mod="causal") * weights)

    close(jax.grad(own)(scale), jax.grad(by_formula)(scale), 1e-4, 1e-4)
    several = jnp.asarray([scale, 0.2])
    close(jax.jit(jax.vmap(jax.grad(own)))(several)[0], jax.grad(own)(scale), 1e-4, 1e-4)


# --- names and types of what a text captures ---


def test_formulas_share_what_they_capture(qkv):
    doc, cap = jnp.asarray(np.arange(B * S).reshape(B, S) // 9, jnp.int32), 2.0
    got = attention(
        *qkv,
        score_mod="cap * tanh(score / cap) + 0.1 * (doc[b, q] - doc[b, k])",
        score_mod_tensors={"cap": cap, "doc": doc},
        mask_mod="doc[b, q] == doc[b, k] && cap > 1.0",
        mask_mod_tensors={"doc": doc, "cap": cap},
    )
    want = attention(
        *qkv,
        score_mod=lambda s, b, h, i, j: cap * jnp.tanh(s / cap) + 0.1 * (doc[b, i] - doc[b, j]),
        mask_mod=lambda b, h, i, j: doc[b, i] == doc[b, j],
    )
    close(got, want)
    with pytest.raises(ValueError, match="'doc' is captured twice"):
        attention(
            *qkv,
            score_mod="score + doc[b, q]",
            score_mod_tensors={"doc": doc},
            mask_mod="doc[b, q] == doc[b, k]",
            mask_mod_tensors={"doc": doc + 1},
        )


def test_any_name_is_free(qkv):
    """a0 and s0 are names that Fovea itself gives."""
    bias, slopes = random((1, H, S, S)), jnp.asarray(SLOPES, jnp.float32)
    more = {
        "score_mod_tensors": {"a0": slopes, "s0": 0.5},
        "bias": bias,
        "mask_mod": lambda b, h, i, j: slopes[h] * i >= GAIN * j,
    }
    got = attention(*qkv, score_mod="s0 * score + a0[h]", **more)
    want = attention(*qkv, score_mod="x * score + t[h]", **{**more, "score_mod_tensors": {"t": slopes, "x": 0.5}})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ("int8", "int16", "uint8", "float16", "float64"))
def test_texts_and_functions_capture_the_same_types(dtype, qkv):
    with jax.enable_x64(True):
        table = jnp.arange(S).astype(dtype)
        text = attention(*qkv, score_mod="score + 0.1 * t[k]", score_mod_tensors={"t": table})
        close(text, attention(*qkv, score_mod=lambda s, b, h, i, j: s + 0.1 * table[j].astype(jnp.float32)))


@pytest.mark.parametrize("form", ("text", "function"))
def test_derivatives_by_hand_use_what_is_captured(form, qkv):
    tensors = {"t": jnp.asarray(SLOPES, jnp.float32)}
    texts = {"score_mod": "score * t[h]", "score_mod_bprop": "grad * t[h]", "score_mod_tensors": tensors}
    functions = {
        "score_mod": lambda s, b, h, i, j, c: s * c["t"][h],
        "score_mod_bprop": lambda g, s, b, h, i, j, c: g * c["t"][h],
        "score_mod_tensors": tensors,
        "score_mod_bprop_tensors": tensors,
    }
    by_hand = texts if form == "text" else functions
    derived = {key: texts[key] for key in ("score_mod", "score_mod_tensors")}
    got, want = (
        jax.grad(lambda q, m=m: jnp.sum(attention(q, *qkv[1:], **m) ** 2))(qkv[0]) for m in (by_hand, derived)
    )
    close(got, want, 1e-4)


# --- what goes by rows, beside offsets ---

OFFSETS = {
    "heads": {"h_offset": 4, "global_heads": 2 * H},
    "batch": {"b_offset": 2},
    "positions": {"q_offset": 5, "kv_offset": 3},
    "positions of each": {"q_offset": np.array([0, 5, 1, 2]), "b_offset": 1},
}


@pytest.mark.parametrize("name", OFFSETS)
def test_biases_masks_and_segments_go_by_rows(name, qkv):
    """Offsets are what modifiers see; an array of this call's shape is indexed by its own rows."""
    ids = jnp.asarray(np.sort(np.random.default_rng(0).integers(1, 4, (B, S)), axis=1))
    arrays = {
        "bias": random((B, H, S, S), 4),
        "dense_mask": (random((B, 1, S, S), 5) > -1.0) | jnp.eye(S, dtype=bool),
        "sequence_descriptor": SequenceDescriptor.from_segment_ids_and_pos(ids),
    }
    want = jax.grad(lambda q, bias: jnp.sum(attention(q, *qkv[1:], **{**arrays, "bias": bias}) ** 2), argnums=(0, 1))
    got = jax.grad(
        lambda q, bias: jnp.sum(attention(q, *qkv[1:], **{**arrays, "bias": bias}, **OFFSETS[name]) ** 2),
        argnums=(0, 1),
    )
    close(got(qkv[0], arrays["bias"]), want(qkv[0], arrays["bias"]), 1e-4)


def test_a_decoder_with_a_bias(qkv):
    q, k, v = qkv
    bias = random((1, H, 1, S))
    steps = [attention(q[:, i : i + 1], k, v, bias=bias, mask_mod=causal, q_offset=i) for i in (0, 7, 31)]
    whole = attention(q, k, v, bias=bias, mask_mod=causal)
    close(jnp.concatenate(steps, axis=1), whole[:, jnp.array([0, 7, 31])])


def test_offsets_are_mapped_beside_a_bias(qkv):
    """vmap over a scalar offset: one per sequence, for the positions and for the rows of the bias."""
    bias, starts = random((B, H, S, S)), jnp.arange(3)

    def attend(start):
        return attention(*qkv, bias=bias, mask_mod=causal, q_offset=start)

    close(jax.vmap(attend)(starts), jnp.stack([attend(i) for i in (0, 1, 2)]))


# --- other values ---


def test_windows_of_numpy(qkv):
    close(
        dot_product_attention(*qkv, local_window_size=np.int64(3)), dot_product_attention(*qkv, local_window_size=3)
    )

"""The Flax module: Transformer Engine's arguments and defaults, and what it refuses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import HKV, B, D, H, S, softcap
from jax_definition import DTYPE, close, differs

import fovea
import fovea.jax
from fovea.jax import SequenceDescriptor, attention

pytest.importorskip("flax", reason="the module needs flax, which is not installed")


def random(shape, i=0):
    return jax.random.normal(jax.random.key(i), shape, DTYPE)


def module(**options):
    options = {"head_dim": D, "num_attention_heads": H, "num_gqa_groups": HKV, **options}
    return fovea.jax.DotProductAttention(**options)


def apply(qkv, *args, options=None, **arguments):
    return module(**options or {}).apply({}, *qkv, *args, deterministic=True, **arguments)


def test_modifiers_sinks_and_dropout(qkv):
    layer = module(softmax_type="learnable", window_size=(6, -1), attention_dropout=0.5, score_mod=softcap(2.0))
    params = layer.init(jax.random.key(0), *qkv, deterministic=True)
    assert params["params"]["softmax_offset"].shape == (1, H, 1, 1)  # as Transformer Engine's checkpoints have it
    got = layer.apply(params, *qkv, deterministic=True)
    want = attention(
        *qkv, score_mod=softcap(2.0), mask_mod=lambda b, h, q, k: (q >= k) & (q - k <= 6), sink=jnp.zeros(H)
    )
    close(got, want)
    dropped = layer.apply(params, *qkv, rngs={"dropout": jax.random.key(1)})
    assert differs(dropped, got)
    grads = jax.grad(lambda p: jnp.sum(layer.apply(p, *qkv, deterministic=True) ** 2))(params)
    assert np.asarray(grads["params"]["softmax_offset"]).any()


def test_masks_like_transformer_engine(qkv):
    """True, or 1, is what is dropped; sequences first if that is asked for."""
    dropped = random((B, 1, S, S), 3) > 1.0
    bias = random((1, H, S, S), 4)
    options = {"attn_mask_type": "padding", "attn_bias_type": "PRE_SCALE_BIAS"}
    want = attention(*qkv, bias=bias / np.sqrt(D), dense_mask=~dropped)
    turned = [jnp.swapaxes(x, 0, 1) for x in qkv]
    first = apply(turned, bias=bias, mask=dropped, options={**options, "transpose_batch_sequence": True})
    close(jnp.swapaxes(first, 0, 1), want)
    close(apply(qkv, dropped.astype(jnp.uint8), bias, options=options), want)
    zero = apply(qkv, dropped, bias, options={**options, "scale_factor": 0.0})
    close(zero, attention(*qkv, scale=0.0, dense_mask=~dropped))


@pytest.mark.parametrize("dtype", (jnp.bfloat16, jnp.float16))
def test_the_output_has_the_type_of_the_inputs(dtype, qkv):
    half = [x.astype(dtype) for x in qkv]
    o = apply(half)
    assert o.dtype == dtype
    close(o, attention(*half, mask_mod="causal"))
    with pytest.warns(UserWarning, match="dtype is deprecated"):
        apply(half, options={"dtype": dtype})


@pytest.mark.parametrize("name", ("causal_bottom_right", "bottom_right_causal", "padding_causal_bottom_right"))
def test_names_of_masks(name, qkv):
    q, k, v = qkv[0][:, : S // 2], *qkv[1:]
    lengths = (jnp.full(B, S // 2, jnp.int32), jnp.full(B, S, jnp.int32))
    described = SequenceDescriptor.from_seqlens(lengths) if "padding" in name else None
    close(apply((q, k, v), described, options={"attn_mask_type": name}), attention(q, k, v, mask_mod="causal_bottom_right"))


LENGTHS = np.array([S, 5, 1, 9][:B], np.int32)
REFUSED = {
    "padding without lengths": ({"attn_mask_type": "padding"}, {}, "needs a sequence_descriptor"),
    "mask that is ignored there": ({}, {"mask": np.ones((1, 1, S, S), bool)}, "mask: given, but attn_mask_type='causal'"),
    "mask of floats": ({"attn_mask_type": "padding"}, {"mask": np.ones((1, 1, S, S), np.float32)}, "must be bool"),
    "mask of other heads": (
        {"attn_mask_type": "padding"},
        {"mask": np.ones((1, 2, S, S), bool)},
        "dense_mask: shape .* must broadcast",
    ),
    "mask twice": (
        {"attn_mask_type": "padding"},
        {"mask": np.ones((1, 1, S, S), bool), "sequence_descriptor": SequenceDescriptor.from_seqlens(LENGTHS)},
        "mask, sequence_descriptor: both are given",
    ),
    "lengths of other batches": (
        {"attn_mask_type": "padding"},
        {"sequence_descriptor": SequenceDescriptor.from_seqlens(np.ones(B + 1, np.int32))},
        r"q_lengths: shape .*; must be \[4\]",
    ),
    "bias of other heads": ({}, {"bias": np.ones((1, 2, S, S), np.float32)}, "bias: shape .* must broadcast"),
    "bias with no_bias": ({"attn_bias_type": "no_bias"}, {"bias": np.ones((1, 1, S, S), np.float32)}, "bias: given, but"),
    "no bias with a type": ({"attn_bias_type": "post_scale_bias"}, {}, "needs a bias, and none is given"),
    "strategy": ({"context_parallel_strategy": "tree"}, {}, "context_parallel_strategy='tree': must be one of default"),
    "type": ({"dtype": jnp.float16}, {}, "dtype=float16: must be"),
    "tensors of no derivative": (
        {"score_mod": softcap(2.0)},
        {"score_mod_bprop_tensors": {"x": 1.0}},
        "score_mod_bprop_tensors: given without score_mod_bprop",
    ),
    "keys that are no names": (
        {"score_mod": lambda s, b, h, q, k, tensors: s},
        {"score_mod_tensors": {1: 1.0}},
        "score_mod_tensors: the key 1 is a int; must be a name",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, qkv):
    options, arguments, message = REFUSED[name]
    with pytest.raises(fovea.InvalidArgument, match=message):
        jax.eval_shape(functools.partial(apply, options=options, **arguments), qkv)


def test_mixed_types_are_refused(qkv):
    with pytest.raises(fovea.InvalidArgument, match="v: float16; must be"):
        apply([*qkv[:2], qkv[2].astype(jnp.float16)])


def test_groups_of_packed_arrays(qkv):
    packed = jnp.stack([qkv[0]] * 3, axis=-3)
    with pytest.raises(fovea.InvalidArgument, match="num_gqa_groups=2: must be num_attention_heads=4"):
        module(qkv_layout="BS3HD").apply({}, packed, deterministic=True)
    whole = fovea.jax.DotProductAttention(head_dim=D, num_attention_heads=H, qkv_layout="BS3HD")
    close(whole.apply({}, packed, deterministic=True), attention(qkv[0], qkv[0], qkv[0], mask_mod="causal"))

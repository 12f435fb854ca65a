"""What people bring from Transformer Engine: biases beside modifiers, names of masks, checkpoints, trackers of random
states, rotary positions of packed sequences."""

import contextlib

import dense
import pytest
import torch

import fovea
from fovea.torch import DotProductAttention, MultiheadAttention

S, B, H, D = 12, 2, 4, 8


def draw(*shape):
    return torch.randn(*(shape or (B, S, H, D)))


def reference(q, k, v, mod=None, mask=None):
    o, _ = dense.attention(*(x.double().transpose(1, 2) for x in (q, k, v)), mod, mask)
    return o.transpose(1, 2).flatten(-2)


def test_a_bias_beside_a_modifier():
    """The order is scale, bias, score_mod."""
    module = DotProductAttention(H, D, qkv_format="bshd", attn_mask_type="no_mask")
    (q, k, v), bias = (draw() for _ in range(3)), draw(1, H, S, S)
    cap = lambda s, b, h, i, j: 2 * torch.tanh(s / 2)
    o = module(q, k, v, core_attention_bias_type="post_scale_bias", core_attention_bias=bias, score_mod=cap)
    capped = lambda s, b, h, i, j: 2 * torch.tanh((s + bias.double()[0, h, i, j]) / 2)
    dense.assert_close("o", o, reference(q, k, v, capped), torch.float32)
    slopes = torch.rand(H)
    o = module(q, k, v, core_attention_bias_type="alibi", alibi_slopes=slopes, score_mod="2 * tanh(score / 2)")
    sloped = lambda s, b, h, i, j: 2 * torch.tanh((s - slopes.double()[h] * (i - j).abs()) / 2)
    dense.assert_close("o", o, reference(q, k, v, sloped), torch.float32)
    with pytest.raises(fovea.InvalidArgument, match="put the bias into score_mod"):
        module(q, k, v, core_attention_bias_type="alibi", score_mod=cap)


def test_causal_padding_is_padding_causal():
    q, k, v = (draw() for _ in range(3))
    starts = torch.tensor([0, 7, 19], dtype=torch.int32)
    given = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts}
    module = DotProductAttention(H, D, qkv_format="bshd", attn_mask_type="causal_padding")
    assert torch.equal(module(q, k, v, **given), module(q, k, v, attn_mask_type="padding_causal", **given))


class Tracker:
    """Of random states, as Megatron's: fork() runs what is inside with a state of its own."""

    def __init__(self):
        self.state, self.forks = torch.Generator().manual_seed(5).get_state(), 0

    @contextlib.contextmanager
    def fork(self, name="model-parallel-rng"):
        outside = torch.get_rng_state()
        torch.set_rng_state(self.state)
        self.forks += 1
        try:
            yield
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(outside)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_tracker_of_random_states_gives_the_dropout(checkpointed):
    q, k, v = (draw() for _ in range(3))
    results = []
    for seed in (1, 2):  # torch's own state has no say
        torch.manual_seed(seed)
        tracker = Tracker()
        module = DotProductAttention(
            H, D, qkv_format="bshd", attn_mask_type="causal", attention_dropout=0.3, get_rng_state_tracker=lambda t=tracker: t
        )
        before = torch.get_rng_state()
        results.append([module(q, k, v, checkpoint_core_attention=checkpointed) for _ in range(2)])
        assert tracker.forks == 2 and torch.equal(before, torch.get_rng_state())
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])
    assert not torch.equal(*results[0])


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("norm", [False, True])
def test_checkpoints_load_strictly(kind, norm):
    """As Transformer Engine saves them by default: projections in parts, a state of FP8 beside each."""
    options = {"attention_type": kind, "input_layernorm": norm, "num_gqa_groups": 2, "device": "cpu", "attention_dropout": 0.0}
    module, other = (MultiheadAttention(H * D, H, **options) for _ in range(2))
    saved = {}
    for name, x in module.state_dict().items():
        layer, _, leaf = name.rpartition(".")
        widths = {"qkv": (32, 16, 16), "layernorm_qkv": (32, 16, 16), "key_value": (16, 16)}.get(layer)
        if widths is None or leaf.startswith("layer_norm"):
            saved[name] = x
            continue
        parts = ("query", "key", "value")[-len(widths) :]
        saved.update({f"{layer}.{part}_{leaf}": y for part, y in zip(parts, x.split(widths))})
    saved.update({f"{layer}._extra_state": torch.empty(0) for layer in ("core_attention", "proj", "qkv", "layernorm_query")})
    other.load_state_dict(saved, strict=True)
    hidden = draw(S, B, H * D)
    given = {"encoder_output": draw(S, B, H * D)} if kind == "cross" else {}
    assert torch.equal(module(hidden, **given), other(hidden, is_first_microbatch=True, **given))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({name: x for name, x in saved.items() if "value" not in name}, strict=True)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions_of_packed_sequences(interleaved):
    """Each sequence counts from 0, as it does alone."""
    options = {"qkv_format": "thd", "attn_mask_type": "padding_causal", "device": "cpu", "attention_dropout": 0.0}
    module = MultiheadAttention(H * D, H, rotary_pos_interleaved=interleaved, **options)
    angles = torch.rand(S, 1, 1, D) * 6
    lengths = (5, 12, 0, 3)
    starts = torch.tensor([0, 5, 17, 17, 20], dtype=torch.int32)
    hidden = draw(20, H * D)
    given = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts, "max_seqlen_q": 12, "max_seqlen_kv": 12}
    packed = module(hidden, rotary_pos_emb=angles, **given)
    module.qkv_format = module.core_attention.qkv_format = "sbhd"
    for first, length in zip(starts.tolist(), lengths):
        alone = module(hidden[first : first + length, None], attn_mask_type="causal", rotary_pos_emb=angles)
        torch.testing.assert_close(packed[first : first + length], alone[:, 0], rtol=1e-5, atol=1e-6)
    module.qkv_format = module.core_attention.qkv_format = "thd"
    with pytest.raises(fovea.InvalidArgument, match="must have at least 12 positions"):
        module(hidden, rotary_pos_emb=angles[:11], **given)

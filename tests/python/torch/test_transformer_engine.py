"""What people bring from Transformer Engine: biases beside modifiers, names of masks, checkpoints, trackers of random
states, rotary positions of packed sequences."""

import contextlib
import re

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


def capped(graph, score, tensors):
    return graph.mul(graph.tanh(graph.div(score, tensors["cap"])), tensors["cap"])


CAP = {"cap": torch.full((1, 1, 1, 1), 2.0)}
CAPS = {  # 2 * tanh(score / 2) in every form; `slopes` are the caller's, not ALiBi's
    "function": {"score_mod": lambda s, b, h, i, j: 2 * torch.tanh(s / 2)},
    "text": {"score_mod": "slopes[h] * tanh(score / slopes[h])", "score_mod_tensors": {"slopes": torch.full((H,), 2.0)}},
    "stock formula": {"score_mod": "softcap(2)"},
    "Program": {"score_mod": fovea.formula("softcap(2)")},
    "callback": {"score_mod": capped, "score_mod_tensors": CAP},
    "derivative": {
        "score_mod": "2 * tanh(score / 2)",
        "score_mod_bprop": "let t = tanh(score / 2); grad * (1 - t * t)",
    },
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", CAPS)
@pytest.mark.parametrize("kind", ["pre_scale_bias", "post_scale_bias", "alibi"])
def test_a_bias_beside_a_modifier(kind, form, compiled):
    """The order is scale, bias, score_mod."""
    q, k, v = (draw().requires_grad_() for _ in range(3))
    bias = (torch.rand(H) if kind == "alibi" else draw(1, H, S, 1).mul(3) + draw(1, 1, S, S)).requires_grad_()
    name = "alibi_slopes" if kind == "alibi" else "core_attention_bias"
    module = DotProductAttention(H, D, qkv_format="bshd", attn_mask_type="no_mask")
    run = torch.compile(module, backend="aot_eager", fullgraph=True) if compiled else module
    torch._dynamo.reset()
    o = run(q, k, v, core_attention_bias_type=kind, **{name: bias}, **CAPS[form])
    exact = dense.doubled((q, k, v, bias))

    def biased(s, b, h, i, j):
        if kind == "alibi":
            return s - exact[3][h] * (i - j).abs()
        return s + exact[3][0, h, i, j] * (D**-0.5 if kind == "pre_scale_bias" else 1.0)

    expected = reference(*exact[:3], lambda *at: 2 * torch.tanh(biased(*at) / 2))
    dense.assert_derived(o, (q, k, v, bias), expected, exact)


@pytest.mark.parametrize("form", ["none", "function", "stock formula", "callback"])
def test_lengths_that_vary_in_a_compiled_program(form):
    module = DotProductAttention(H, D, qkv_format="bshd", attn_mask_type="causal")
    given = CAPS.get(form, {})

    def run(q, bias, masked, slopes):
        first = module(q, q, q, core_attention_bias_type="post_scale_bias", core_attention_bias=bias, **given)
        second = module(q, q, q, core_attention_bias_type="alibi", alibi_slopes=slopes, **given)
        return first + second + module(q, q, q, attn_mask_type="padding", attention_mask=masked)

    torch._dynamo.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
    for batch, length in ((2, 9), (2, 12), (3, 17)):
        masked = torch.zeros(batch, 1, 1, length, dtype=torch.bool)
        masked[0, ..., :3] = True
        x = draw(batch, length, H, D), draw(1, H, length, length), masked, torch.rand(batch, H)
        torch.testing.assert_close(compiled(*x), run(*x))


def test_biases_meet_float64_as_they_are():
    """Neither slopes nor angles are rounded to f32."""
    options = {"attn_mask_type": "no_mask", "engine": "reference"}
    q, k, v = (draw().double() for _ in range(3))
    module = DotProductAttention(H, D, qkv_format="bshd", **options)
    slopes = torch.rand(H, dtype=torch.float64)
    o = module(q, k, v, core_attention_bias_type="alibi", alibi_slopes=slopes)
    dense.assert_close("o", o, reference(q, k, v, lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()), torch.float64)
    options |= {"params_dtype": torch.float64, "device": "cpu", "attention_dropout": 0.0, "bias": False}
    module = MultiheadAttention(H * D, H, **options)
    hidden, angles = draw(S, B, H * D).double(), torch.rand(S, 1, 1, D, dtype=torch.float64) * 6
    q, k, v = module.qkv(hidden).unflatten(-1, (3, H, D)).unbind(-3)
    half = lambda x: torch.cat([-x[..., D // 2 :], x[..., : D // 2]], -1)
    q, k, v = (x.transpose(0, 1) for x in (*(x * angles.cos() + half(x) * angles.sin() for x in (q, k)), v))
    expected = module.proj(reference(q, k, v)).transpose(0, 1)
    dense.assert_close("o", module(hidden, rotary_pos_emb=angles), expected, torch.float64)


WRONG_SHAPE, TOO_SHORT = "must be [S, 1, 1, R]", "must have at least 12 positions"
WRONG_ANGLES = {shape: WRONG_SHAPE for shape in ((S, B, 1, D), (1, S, 1, D), (S, 1, 1, 5), (S, D))}
WRONG_ANGLES |= {(S - 1, 1, 1, D): TOO_SHORT, (S, 1, 1, 2 * D): "and at most 8 features"}


@pytest.mark.parametrize("shape", WRONG_ANGLES)
def test_tables_of_angles_that_do_not_fit(shape):
    module = MultiheadAttention(H * D, H, device="cpu", attention_dropout=0.0)
    with pytest.raises(fovea.InvalidArgument, match="rotary_pos_emb: .*" + re.escape(WRONG_ANGLES[shape])):
        module(draw(S, B, H * D), rotary_pos_emb=torch.rand(shape))


def test_padding_on_the_left_compiled():
    q, k, v = (draw() for _ in range(3))
    masked = torch.zeros(B, 1, 1, S, dtype=torch.bool)
    masked[0, ..., :5] = True
    module = DotProductAttention(H, D, qkv_format="bshd", attn_mask_type="padding")
    torch._dynamo.reset()
    run = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(q, k, v, attention_mask=masked), module(q, k, v, attention_mask=masked))
    for masks in ((masked,), (masked,) * 3):
        with pytest.raises(fovea.InvalidArgument, match=f"attention_mask: {len(masks)} masks; must be one, or two"):
            module(q, k, v, attention_mask=masks)


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
        widths = {"qkv": (32, 16, 16), "layernorm_qkv": (32, 16, 16), "key_value": (16, 16), "layernorm_query": (32,)}.get(layer)
        if widths is None or leaf.startswith("layer_norm"):
            saved[name] = x
            continue
        parts = ("query", "key", "value")[-len(widths) :] if len(widths) > 1 else ("query",)
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

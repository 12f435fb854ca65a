"""DotProductAttention and MultiheadAttention: Transformer Engine's arguments against SDPA and the dense reference."""

import math

import dense
import pytest
import torch
import torch.nn.functional as F

import fovea
from fovea.torch import DotProductAttention, MultiheadAttention

S, B, H, D = 26, 2, 4, 16
FROM = {"sbhd": (1, 2, 0, 3), "bshd": (0, 2, 1, 3)}  # to [B, H, S, D]


def draw(qkv_format="sbhd", heads=H, length=S, channels=D):
    shape = {"sbhd": (length, B, heads, channels), "bshd": (B, length, heads, channels)}[qkv_format]
    return torch.randn(shape, requires_grad=True)


def compare(module, inputs, mask=None, mod=None, scale=None, sink=None, captured=(), **options):
    """Outputs and gradients against the dense reference, in the module's format."""
    out = module(*inputs, **options)
    order = FROM[module.qkv_format]
    leaves = [*inputs, *([] if sink is None else [sink])]
    exact = dense.doubled(leaves)
    ref, _ = dense.attention(*(x.permute(order) for x in exact[:3]), mod, mask, scale, *exact[3:])
    ref = ref.permute([order.index(i) for i in range(4)])
    dense.assert_derived(out, leaves, ref.reshape(*ref.shape[:2], -1), exact)


causal = lambda b, h, q, k: q >= k


@pytest.mark.parametrize("qkv_format", ["sbhd", "bshd"])
def test_formats_and_defaults(qkv_format):
    compare(DotProductAttention(H, D, qkv_format=qkv_format), [draw(qkv_format) for _ in range(3)], causal)


@pytest.mark.parametrize(
    "name,mask", [("no_mask", None), ("causal", causal), ("causal_bottom_right", lambda b, h, q, k: q + 6 >= k)]
)
def test_mask_types(name, mask):
    inputs = [draw(length=20), draw(), draw()]
    compare(DotProductAttention(H, D, attn_mask_type=name), inputs, mask)
    compare(DotProductAttention(H, D), inputs, mask, attn_mask_type=name)


def test_padding_masks():
    """By starts or by a mask that is True for padding; rows of padding are zeros."""
    inputs = [draw() for _ in range(3)]
    lengths = torch.tensor([S, 11])
    starts = F.pad(lengths.cumsum(0), (1, 0)).int()
    masked = torch.arange(S)[None] >= lengths[:, None]
    kept = lambda b, h, q, k: (k < 26 - 15 * b) & (q < 26 - 15 * b)
    for mask_type, mask in (
        ("padding", kept),
        ("padding_causal", lambda b, h, q, k: kept(b, h, q, k) & (q >= k)),
        ("padding,causal", lambda b, h, q, k: kept(b, h, q, k) & (q >= k)),
    ):
        module = DotProductAttention(H, D, attn_mask_type=mask_type)
        compare(module, inputs, mask, cu_seqlens_q=starts, cu_seqlens_kv=starts)
        compare(module, inputs, mask, attention_mask=masked[:, None, None, :])


def test_padding_that_is_not_at_the_end():
    """On the left, with holes, or by query and key: a mask, not lengths."""
    inputs = [draw() for _ in range(3)]
    left = torch.zeros(B, S, dtype=torch.bool)
    left[1, :9] = True
    holes = torch.zeros(B, S, dtype=torch.bool)
    holes[0, 3::5] = True
    for masked in (left, holes):
        kept = lambda b, h, q, k: ~(masked[b, q] | masked[b, k])
        for mask_type, mask in (("padding", kept), ("padding_causal", lambda b, h, q, k: kept(b, h, q, k) & (q >= k))):
            module = DotProductAttention(H, D, attn_mask_type=mask_type)
            compare(module, inputs, mask, attention_mask=masked[:, None, None, :])
            compare(module, inputs, mask, attention_mask=(masked[:, None, None, :], masked[:, None, None, :]))
    module = DotProductAttention(H, D, attn_mask_type="padding_causal_bottom_right")
    with pytest.raises(fovea.InvalidArgument, match="needs padding at the end"):
        module(*inputs, attention_mask=left[:, None, None, :])
    hidden = torch.rand(B, 1, S, S) < 0.5
    module = DotProductAttention(H, D, attn_mask_type="padding")
    compare(module, inputs, lambda b, h, q, k: ~hidden[b, 0, q, k], attention_mask=hidden)


def test_a_padding_mask_of_one_query():
    """[B, 1, Sq, Skv], also if Sq is 1."""
    inputs, hidden = [draw(length=1), draw(), draw()], torch.rand(B, 1, 1, S) < 0.5
    module = DotProductAttention(H, D, attn_mask_type="padding")
    compare(module, inputs, lambda b, h, q, k: ~hidden[b, 0, 0, k] & (q >= 0), attention_mask=hidden)


@pytest.mark.parametrize("mask_type", ["causal", "no_mask"])
def test_padding_without_a_padding_type_is_ignored_with_a_warning(mask_type):
    """As Transformer Engine does; Megatron passes a mask with every type."""
    inputs, starts = [draw() for _ in range(3)], torch.tensor([0, 11, 11 + S]).int()
    module = DotProductAttention(H, D, attn_mask_type=mask_type)
    mask = causal if mask_type == "causal" else None
    with pytest.warns(UserWarning, match=f"attention_mask: ignored with attn_mask_type='{mask_type}'"):
        compare(module, inputs, mask, attention_mask=torch.rand(B, 1, 1, S) < 0.5)
    with pytest.warns(UserWarning, match=f"cu_seqlens_q, cu_seqlens_kv: ignored with attn_mask_type='{mask_type}'"):
        compare(module, inputs, mask, cu_seqlens_q=starts, cu_seqlens_kv=starts)


def test_alibi_beside_a_formula_with_names_of_its_own():
    """The formula's `slopes` and `biased` stay what the user says."""
    inputs, slopes, given = [draw() for _ in range(3)], torch.rand(H), torch.rand(H)
    compare(
        DotProductAttention(H, D),
        inputs,
        causal,
        mod=lambda s, b, h, q, k: 2 * ((s - slopes[h] * (q - k).abs()) + given[h] * k),
        core_attention_bias_type="alibi",
        alibi_slopes=slopes,
        score_mod="let biased = score + slopes[h] * k; 2 * biased",
        score_mod_tensors={"slopes": given},
    )


def test_a_window_without_a_bound_is_none():
    """Transformer Engine's rule, with its warning."""
    inputs = [draw() for _ in range(3)]
    with pytest.warns(UserWarning, match="means no window"):
        compare(DotProductAttention(H, D, attn_mask_type="no_mask", window_size=(-1, 0)), inputs)


@pytest.mark.parametrize("shape", [(1, 1, 1, S), (B, 1, 1, S), (1, H, S, 1), (B, H, S, S)])
def test_biases_are_broadcast(shape):
    inputs, bias = [draw() for _ in range(3)], torch.randn(shape)
    at = lambda b, h, q, k: bias[tuple(i if extent > 1 else 0 for extent, i in zip(shape, (b, h, q, k)))]
    compare(
        DotProductAttention(H, D),
        inputs,
        causal,
        mod=lambda s, b, h, q, k: s + at(b, h, q, k),
        core_attention_bias_type="post_scale_bias",
        core_attention_bias=bias,
    )


@pytest.mark.parametrize(
    "options,message",
    [
        ({"core_attention_bias_type": "post_scale_bias", "core_attention_bias": torch.zeros(1, 2, S, S)}, "H must be 4 or 1"),
        ({"core_attention_bias_type": "post_scale_bias", "core_attention_bias": torch.zeros(1, 1, S, 7)}, "Skv must be 26 or 1"),
        ({"core_attention_bias_type": "post_scale_bias"}, "core_attention_bias: post_scale_bias needs"),
        ({"core_attention_bias": torch.zeros(1, 1, S, S)}, "core_attention_bias: given, but .* 'no_bias'"),
        (
            {"core_attention_bias_type": "alibi", "core_attention_bias": torch.zeros(1, 1, S, S)},
            "core_attention_bias: given, but .* 'alibi'",
        ),
        ({"alibi_slopes": torch.ones(H)}, "alibi_slopes: given, but"),
        ({"core_attention_bias_type": "alibi", "alibi_slopes": torch.ones(3)}, r"alibi_slopes: \[3\]; must be \[4\]"),
        ({"attn_mask_type": "arbitrary", "attention_mask": torch.zeros(1, 1, S, S, dtype=torch.int32)}, "must be a bool tensor"),
        ({"attn_mask_type": "arbitrary", "attention_mask": torch.zeros(3, 1, S, S, dtype=torch.bool)}, "B must be 2 or 1"),
        ({"attn_mask_type": "padding", "attention_mask": torch.zeros(B, 1, 1, 9, dtype=torch.bool)}, r"must be \[2, 1, 1, 26\]"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    inputs = [draw() for _ in range(3)]
    with pytest.raises(fovea.InvalidArgument, match=message):
        DotProductAttention(H, D)(*inputs, **options)


def test_arbitrary_masks():
    inputs = [draw() for _ in range(3)]
    for shape in ((1, 1, S, S), (B, 1, S, S), (B, H, S, S)):
        hidden = torch.rand(shape) < 0.5
        mask = lambda b, h, q, k: ~hidden[b if shape[0] > 1 else 0, h if shape[1] > 1 else 0, q, k]
        compare(DotProductAttention(H, D, attn_mask_type="arbitrary"), inputs, mask, attention_mask=hidden)


SHORT = 20  # queries; without a causal mask windows count from the last positions
WINDOWS = {
    "causal": (S, {}, {"window_size": (5, 0)}, lambda b, h, q, k: (q >= k) & (q - k <= 5)),
    "of the call": (S, {}, {"window_size": (-1, 0)}, causal),
    "two sides": (S, {}, {"attn_mask_type": "no_mask", "window_size": (5, 2)}, lambda b, h, q, k: (q - k <= 5) & (k - q <= 2)),
    "from the end": (
        SHORT,
        {"attn_mask_type": "no_mask"},
        {"window_size": (5, 2)},
        lambda b, h, q, k: (q + 6 - k <= 5) & (k - q - 6 <= 2),
    ),
    "from the start": (
        SHORT,
        {"attn_mask_type": "no_mask"},
        {"window_size": (5, 2), "bottom_right_diagonal": False},
        lambda b, h, q, k: (q - k <= 5) & (k - q <= 2),
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name):
    """Said to the module, or to a call."""
    length, options, of_call, mask = WINDOWS[name]
    inputs = [draw(length=length), draw(), draw()]
    compare(DotProductAttention(H, D, **options), inputs, mask, **of_call)
    compare(DotProductAttention(H, D, **options, **of_call), inputs, mask)


def test_biases():
    inputs, bias, slopes = [draw() for _ in range(3)], torch.randn(1, H, S, S), torch.rand(H)
    default = torch.tensor([2.0 ** (-2 * (i + 1)) for i in range(H)])
    added = lambda s, b, h, q, k: s + bias.double()[0, h, q, k]
    before = lambda s, b, h, q, k: s + bias.double()[0, h, q, k] * 0.4
    alibi = lambda slopes: lambda s, b, h, q, k: s - slopes.double()[h] * (q - k).abs()
    module = DotProductAttention(H, D, attn_mask_type="no_mask", softmax_scale=0.4)
    for kind, given, mod in (
        ("post_scale_bias", {"core_attention_bias": bias}, added),
        ("pre_scale_bias", {"core_attention_bias": bias}, before),
        ("alibi", {"alibi_slopes": slopes}, alibi(slopes)),
    ):
        compare(module, inputs, None, mod, 0.4, core_attention_bias_type=kind, **given)
    compare(DotProductAttention(H, D), inputs, causal, alibi(default), core_attention_bias_type="alibi")


def test_softmax_types():
    inputs = [draw() for _ in range(3)]
    learnable = DotProductAttention(H, D, softmax_type="learnable")
    torch.nn.init.normal_(learnable.softmax_offset)
    compare(learnable, inputs, causal, sink=learnable.softmax_offset)
    zero = DotProductAttention(H, D, softmax_type="off-by-one")
    ones = [torch.ones(1, 1, H, D) for _ in range(3)]  # one score of sqrt(D) beside the sink of 0
    share = math.exp(D**0.5) / (1 + math.exp(D**0.5))
    assert math.isclose(float(zero(*ones, attn_mask_type="no_mask")[0, 0, 0]), share, rel_tol=1e-5)
    assert list(dict(learnable.named_parameters())) == ["softmax_offset"]


def test_grouped_heads_and_two_widths():
    compare(DotProductAttention(H, D, num_gqa_groups=2), [draw(), draw(heads=2), draw(heads=2)], causal)
    compare(DotProductAttention(H, (D, 24)), [draw(), draw(), draw(channels=24)], causal)


def test_packed_layers():
    module = DotProductAttention(H, D, qkv_format="bshd")
    qkv = torch.randn(B, S, 3, H, D, requires_grad=True)
    plain = module(*qkv.unbind(2))
    assert torch.equal(module(qkv_layer=qkv), plain)
    assert torch.equal(module(qkv_layer=qkv.transpose(2, 3), qkv_interleave_dim=-2), plain)
    assert torch.equal(module(qkv[:, :, 0], kv_layer=qkv[:, :, 1:]), plain)
    with pytest.raises(fovea.InvalidArgument, match="qkv_layer: goes with no other layer"):
        module(plain, qkv_layer=qkv)


def test_thd_with_padding_between():
    """Sequences in a buffer with gaps: starts of the places, lengths of what is there."""
    lengths, places = torch.tensor([0, 5, 14], dtype=torch.int32), torch.tensor([0, 8, 20], dtype=torch.int32)
    module = DotProductAttention(H, D, qkv_format="thd", attn_mask_type="padding_causal")
    q, k, v = (torch.randn(20, H, D) for _ in range(3))
    out = module(
        q,
        k,
        v,
        cu_seqlens_q=lengths,
        cu_seqlens_kv=lengths,
        cu_seqlens_q_padded=places,
        cu_seqlens_kv_padded=places,
        max_seqlen_q=12,
        max_seqlen_kv=12,
        pad_between_seqs=True,
    )
    for first, count in ((0, 5), (8, 9)):
        one = [x[first : first + count].double().transpose(0, 1)[None] for x in (q, k, v)]
        ref = dense.attention(*one, None, causal)[0][0].transpose(0, 1).reshape(count, -1)
        dense.assert_close("sequence", out[first : first + count], ref, torch.float32)
    assert out[5:8].abs().sum() == 0 and out[17:].abs().sum() == 0
    with pytest.raises(ValueError, match="pad_between_seqs=True: needs cu_seqlens_q_padded"):
        module(q, k, v, cu_seqlens_q=lengths, cu_seqlens_kv=lengths, pad_between_seqs=True)


def test_dropout_only_in_training():
    module, x = DotProductAttention(H, D, attention_dropout=0.5), draw()
    module.eval()
    assert torch.equal(module(x, x, x), module(x, x, x))
    module.train()
    assert not torch.equal(module(x, x, x), module(x, x, x))


def test_max_logit_and_checkpointing():
    x = draw()
    out, most = DotProductAttention(H, D, return_max_logit=True)(x, x, x)
    assert most.shape == (H,)
    plain = DotProductAttention(H, D)
    a = torch.autograd.grad(plain(x, x, x).sum(), x)[0]
    b = torch.autograd.grad(plain(x, x, x, checkpoint_core_attention=True).sum(), x)[0]
    assert torch.equal(a, b) and torch.equal(out, plain(x, x, x))


MODIFIERS = {
    "function": (lambda s, b, h, q, k: 2 * torch.tanh(s / 2), {}),
    "text": ("2 * tanh(score / 2)", {}),
    "program": (fovea.formula("c * tanh(score / c)", scalars={"c": 2.0}), {}),
    "callback": (
        lambda graph, score, tensors: graph.mul(graph.tanh(graph.div(score, tensors["c"])), tensors["c"]),
        {"score_mod_tensors": {"c": torch.full((1, 1, 1, 1), 2.0)}},
    ),
}


@pytest.mark.parametrize("name", MODIFIERS)
def test_modules_take_every_modifier(name):
    score_mod, options = MODIFIERS[name]
    inputs = [draw() for _ in range(3)]
    compare(
        DotProductAttention(H, D),
        inputs,
        causal,
        lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
        score_mod=score_mod,
        **options,
    )
    module = MultiheadAttention(H * D, H, attention_dropout=0.0, device="cpu")
    x = torch.randn(S, B, H * D)
    reference = MODIFIERS["text"][0]
    torch.testing.assert_close(module(x, score_mod=score_mod, **options), module(x, score_mod=reference))


def test_multihead_attention_is_its_parts():
    x = torch.randn(B, S, H * D, requires_grad=True)
    module = MultiheadAttention(H * D, H, attention_dropout=0.0, qkv_format="bshd", device="cpu")
    q, k, v = module.qkv(x).view(B, S, 3 * H, D).transpose(1, 2).chunk(3, 1)
    ref = module.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
    torch.testing.assert_close(module(x), ref, rtol=1e-5, atol=1e-6)
    module(x).square().sum().backward()
    assert x.grad is not None and all(p.grad is not None for p in module.parameters())


def test_multihead_attention_options():
    x = torch.randn(S, B, 64)
    y = torch.randn(9, B, 64)
    make = lambda **options: MultiheadAttention(64, 4, attention_dropout=0.0, device="cpu", **options)
    out, bias, normed = make(return_bias=True, return_layernorm_output=True, input_layernorm=True)(x)
    assert (
        out.shape == x.shape
        and bias.shape == (64,)
        and torch.allclose(normed.mean(-1), torch.zeros(S, B), atol=1e-5)
    )
    cross = make(attention_type="cross", attn_mask_type="no_mask", num_gqa_groups=2)
    assert cross(x, encoder_output=y).shape == x.shape
    with pytest.raises(fovea.InvalidArgument, match="encoder_output"):
        cross(x)
    fused = make(fuse_qkv_params=True, num_gqa_groups=2)
    assert {name for name, _ in fused.named_parameters()} == {"qkv.weight", "qkv.bias", "proj.weight", "proj.bias"}
    for options in (
        {"normalization": "RMSNorm", "input_layernorm": True, "zero_centered_gamma": True},
        {"bias": False},
        {"qk_norm_type": "RMSNorm"},
        {"qk_norm_type": "L2Normalization", "qk_norm_before_rope": True},
        {"softmax_type": "learnable"},
        {"window_size": (4, 0)},
        {"params_dtype": torch.bfloat16},
    ):
        module = make(**options)
        hidden = x.to(options.get("params_dtype", torch.float32))
        assert torch.isfinite(module(hidden)).all()
    angles = (torch.outer(torch.arange(S).float(), 10000 ** (-torch.arange(8) / 8)).repeat(1, 2).view(S, 1, 1, 16))
    torch.manual_seed(0)
    module = make(attn_mask_type="no_mask")
    turned, shifted = module(x, rotary_pos_emb=angles), module(x, rotary_pos_emb=angles + angles[3:4])
    torch.testing.assert_close(turned, shifted, rtol=1e-4, atol=1e-5)  # only differences of angles count
    assert not torch.allclose(turned, module(x), atol=1e-5)

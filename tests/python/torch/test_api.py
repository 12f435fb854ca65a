"""fovea.torch.attention: every argument that changes the meaning, values and gradients against float64."""

import dataclasses
import functools
import inspect
from typing import Callable

import dense
import pytest
import torch

import fovea
from fovea._core import OUTPUTS
from fovea.torch import attention

CASES = {}


@dataclasses.dataclass
class Semantics:
    """A call, and the same said to the dense reference."""

    ours: Callable  # (q, k, v) in [B, H, S, D], sink -> o in [B, H, S, D] or (o, lse)
    mask: Callable = None
    mod: Callable = None
    scale: float = None
    shape: tuple = (2, 4, 4, 33, 33, 16, 16)  # B, H, Hkv, Sq, Skv, D, Dv
    sink: bool = False


def case(name, ours, **options):
    CASES[name] = Semantics(ours, **options)


def to(layout):
    order = {"bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3), "bhsd": (0, 1, 2, 3)}[layout]
    back = [order.index(i) for i in range(4)]
    return (lambda x: x.permute(order).contiguous()), (lambda x: x.permute(back))


def in_layout(layout, **options):
    there, back = to(layout)
    return lambda q, k, v, sink: back(attention(there(q), there(k), there(v), layout=layout, **options))


def plain(**options):
    return lambda q, k, v, sink: attention(q, k, v, **options)


causal = lambda b, h, q, k: q >= k
case("defaults", plain())
case("scale", plain(scale=0.3), scale=0.3)
case("causal", plain(is_causal=True), mask=causal)
case("causal_more_keys", plain(is_causal=True), mask=causal, shape=(2, 2, 2, 20, 33, 16, 16))
case("causal_more_queries", plain(is_causal=True), mask=causal, shape=(2, 2, 2, 33, 20, 16, 16))
case(
    "bottom_right",
    plain(is_causal="bottom_right"),
    mask=lambda b, h, q, k: q + 13 >= k,
    shape=(2, 2, 2, 20, 33, 16, 16),
)
case(
    "bottom_right_empty_rows",
    plain(is_causal="bottom_right"),
    mask=lambda b, h, q, k: q - 13 >= k,
    shape=(2, 2, 2, 33, 20, 16, 16),
)
case("window", plain(window_size=(3, 2)), mask=lambda b, h, q, k: (q - k <= 3) & (k - q <= 2))
case("window_left_only", plain(window_size=(3, -1)), mask=lambda b, h, q, k: q - k <= 3)
case("window_causal", plain(window_size=(5, 0), is_causal=True), mask=lambda b, h, q, k: (q >= k) & (q - k <= 5))
case(
    "window_from_the_end",
    plain(window_size=(3, 2), window_from_the_end=True),
    mask=lambda b, h, q, k: (q + 13 - k <= 3) & (k - q - 13 <= 2),
    shape=(1, 2, 2, 20, 33, 16, 16),
)
for layout in ("bhsd", "bshd", "sbhd"):
    case(f"layout_{layout}", in_layout(layout, is_causal=True), mask=causal)
case("grouped", plain(), shape=(2, 6, 2, 33, 33, 16, 16))
case("multi_query", plain(is_causal=True), mask=causal, shape=(2, 4, 1, 33, 33, 16, 16))
case("value_width", plain(), shape=(2, 4, 4, 33, 33, 16, 24))
case("one_query", plain(), shape=(2, 8, 2, 1, 65, 16, 16))
case("sinks", lambda q, k, v, sink: attention(q, k, v, sinks=sink, is_causal=True), mask=causal, sink=True)
case("deterministic", plain(is_causal=True, deterministic=True), mask=causal)
case(
    "seq_lens",
    lambda q, k, v, s: attention(q, k, v, seq_lens=lens(q, [33, 20])) * rows(q, [33, 20]),
    mask=lambda b, h, q, k: (k < 33 - 13 * b) & (q < 33 - 13 * b),
)
case(
    "seq_lens_pair",
    lambda q, k, v, s: attention(q, k, v, seq_lens=(None, lens(q, [5, 31]))),
    mask=lambda b, h, q, k: k < 5 + 26 * b,
)
case(
    "q_offset",
    plain(is_causal=True, q_offset=13),
    mask=lambda b, h, q, k: q + 13 >= k,
    shape=(1, 2, 2, 20, 33, 16, 16),
)
case(
    "k_offset",
    plain(is_causal=True, q_offset=7, k_offset=4),
    mask=lambda b, h, q, k: q + 3 >= k,
    shape=(1, 2, 2, 20, 20, 16, 16),
)
case(
    "offset_per_sequence",
    lambda q, k, v, s: attention(q, k, v, is_causal=True, q_offset=torch.tensor([3, 9], device=q.device)),
    mask=lambda b, h, q, k: q + 3 + 6 * b >= k,
    shape=(2, 2, 2, 20, 33, 16, 16),
)
case(
    "text",
    plain(score_mod="2 * tanh(score / 2)", mask_mod="q >= k"),
    mod=lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
    mask=causal,
)
case(
    "program",
    plain(score_mod=fovea.formula("cap * tanh(score / cap)", mask="q >= k", scalars={"cap": 2.0})),
    mod=lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
    mask=causal,
)
case(
    "text_with_scalars",
    plain(score_mod="cap * tanh(score / cap) + n", scalars={"cap": 2.0, "n": 3}),
    mod=lambda s, b, h, q, k: 2 * torch.tanh(s / 2) + 3,
)
case(
    "handwritten_derivative",
    plain(
        score_mod=lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
        score_mod_bprop=lambda g, s, b, h, q, k: g * (1 - torch.tanh(s / 2) ** 2),
    ),
    mod=lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
)
case(
    "callback",
    plain(score_mod=lambda graph, score, tensors: graph.mul(graph.tanh(score), graph.tanh(score))),
    mod=lambda s, b, h, q, k: torch.tanh(s) ** 2,
)


def lens(q, numbers):
    return torch.tensor(numbers, dtype=torch.int32, device=q.device)


def rows(q, numbers):
    """Rows past a sequence's end are zeros already; this makes their gradients so in the reference's sum."""
    return (torch.arange(q.shape[2], device=q.device)[None] < lens(q, numbers)[:, None]).to(q.dtype)[:, None, :, None]


def compare(semantics, device, dtype):
    b, h, hkv, sq, skv, d, dv = semantics.shape
    draw = lambda *shape: torch.randn(*shape).to(device, dtype).requires_grad_()
    inputs = [draw(b, h, sq, d), draw(b, hkv, skv, d), draw(b, hkv, skv, dv)]
    sink = torch.randn(h).to(device).requires_grad_() if semantics.sink else None
    o = semantics.ours(*inputs, sink)
    assert o.dtype == dtype and o.shape == (b, h, sq, dv)
    inputs += [] if sink is None else [sink]
    exact = dense.doubled(inputs)
    ref, _ = dense.attention(*exact[:3], semantics.mod, semantics.mask, semantics.scale, *exact[3:])
    dense.assert_derived(o, inputs, ref, exact)


@pytest.mark.parametrize("name", CASES)
def test_semantics(name, device):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        compare(CASES[name], device, dtype)


def packed_compare(device, dtype):
    starts = torch.tensor([0, 7, 7, 30, 41], dtype=torch.int32, device=device)  # one sequence is empty
    q, k, v = (torch.randn(41, 4, 16).to(device, dtype).requires_grad_() for _ in range(3))
    slopes = torch.rand(4).to(device).requires_grad_()
    mod = lambda s, b, h, qi, ki: s + slopes[h] * (ki - qi) + 0.1 * b
    o, lse = attention(q, k, v, layout="thd", cu_seqlens=starts, score_mod=mod, is_causal=True, return_lse=True)
    assert o.shape == q.shape and lse.shape == (4, 41)
    exact = dense.doubled((q, k, v, slopes))
    parts = []
    for i, (first, last) in enumerate(zip(starts.tolist(), starts.tolist()[1:])):
        one = [x[first:last].transpose(0, 1)[None] for x in exact[:3]]
        here = lambda s, b, h, qi, ki, i=i: s + exact[3][h] * (ki - qi) + 0.1 * i
        if last > first:
            parts.append(dense.attention(*one, here, causal)[0][0].transpose(0, 1))
    dense.assert_derived(o, (q, k, v, slopes), torch.cat(parts), exact)


def test_packed_sequences(device):
    for dtype in (torch.float32, torch.bfloat16):
        packed_compare(device, dtype)


def test_packed_queries_and_padded_keys(device):
    """Keys in slots with room to grow, queries aligned with the last of them: a decoder's cache."""
    cpu_only(device)
    starts, slots, lengths = torch.tensor([0, 3, 4]), torch.tensor([0, 10, 20]), torch.tensor([7, 4])
    q, k, v = torch.randn(4, 2, 16), torch.randn(20, 2, 16), torch.randn(20, 2, 16)
    o = attention(
        q, k, v, layout="thd", cu_seqlens=(starts, slots), seq_lens=(None, lengths), is_causal="bottom_right"
    )
    for i, (first, last) in enumerate(((0, 3), (3, 4))):
        slot, length = int(slots[i]), int(lengths[i])
        one = [
            x.double().transpose(0, 1)[None]
            for x in (q[first:last], k[slot : slot + length], v[slot : slot + length])
        ]
        ref, _ = dense.attention(*one, None, lambda b, h, a, c: a + length - (last - first) >= c)
        dense.assert_close("o", o[first:last], ref[0].transpose(0, 1), torch.float32)


def cpu_only(device):
    if device.type != "cpu":
        pytest.skip("the same on every device: run on the CPU")


def test_first_calls_are_verified(device):
    """verify=True: the reference engine has a plan for a sample of the forward and of the backward, once."""
    q = torch.randn(1, 2, 37, 16, device=device, requires_grad=True)
    for builds in (4, 0):
        before = fovea.cache_stats()["builds"]
        attention(q, q, q, score_mod="sin(score) * cos(score / 3)", is_causal=True, verify=True).sum().backward()
        assert fovea.cache_stats()["builds"] - before == builds


def test_outputs_beside_o(device):
    cpu_only(device)
    q, k, v = (torch.randn(2, 3, 20, 16) for _ in range(3))
    ref, ref_lse = dense.attention(q.double(), k.double(), v.double(), mask_mod=causal)
    o, lse, most = attention(q, k, v, is_causal=True, return_lse=True, return_max_logit=True)
    dense.assert_close("lse", lse, ref_lse, torch.float32)
    scores = (q @ k.transpose(-1, -2) / 4).masked_fill(torch.ones(20, 20).triu(1).bool(), -float("inf"))
    dense.assert_close("max_logit", most, scores.amax((0, 2, 3)), torch.float32)
    o, rows, heads = attention(q, k, v, return_row_max=True, return_max_logit=True)
    assert torch.equal(rows.amax((0, 2)), heads) and heads.shape == (3,)
    keywords = [name for name in inspect.signature(attention).parameters if name.startswith("return_")]
    assert keywords == [f"return_{name}" for name in OUTPUTS]
    assert isinstance(attention(q, k, v), torch.Tensor)


def test_sizes_of_zero(device):
    cpu_only(device)
    none = torch.randn(0, 4, 16, 8, requires_grad=True)
    assert attention(none, none, none).shape == (0, 4, 16, 8)
    q = torch.randn(2, 4, 16, 8, requires_grad=True)
    empty = torch.randn(2, 4, 0, 8, requires_grad=True)
    o, lse = attention(q, empty, empty, return_lse=True)
    assert torch.equal(o, torch.zeros_like(q)) and torch.all(lse == -float("inf"))
    grads = torch.autograd.grad(o.sum(), (q, empty))
    assert torch.equal(grads[0], torch.zeros_like(q)) and grads[1].shape == empty.shape


def test_dropout_obeys_torchs_generators(device):
    cpu_only(device)
    q, k, v = (torch.randn(2, 3, 40, 16, requires_grad=True) for _ in range(3))
    run = lambda **options: attention(q, k, v, dropout_p=0.4, **options)
    torch.manual_seed(5)
    first, second = run(), run()
    torch.manual_seed(5)
    assert torch.equal(run(), first) and not torch.equal(first, second)
    make = lambda: torch.Generator().manual_seed(7)
    assert torch.equal(run(generator=make()), run(generator=make()))
    assert torch.equal(run(seed=11), run(seed=11)) and torch.equal(run(seed=torch.tensor(11)), run(seed=11))
    assert torch.equal(run(seed=2**64 - 1), run(seed=-1))
    # What is kept is what the backward sees: the output is linear in v, so its gradient knows the mask.
    o = run(seed=3)
    (dv,) = torch.autograd.grad(o, v, torch.ones_like(o))
    assert abs(float((dv * v).sum() - o.sum())) < 1e-3
    many = attention(q.detach(), k.detach(), torch.ones_like(v), dropout_p=0.4, seed=1)
    assert 0.9 < float(many.mean()) < 1.1


def test_a_callback_and_a_traced_mask_together(device):
    """Both capture; each of them finds its own tensors."""
    cpu_only(device)
    q, k, v = (torch.randn(2, 3, 20, 16) for _ in range(3))
    bias, table = torch.randn(1, 3, 20, 20), torch.rand(5) < 0.7
    table[0] = True
    add = lambda graph, score, tensors: graph.add(score, tensors["bias"])
    kept = lambda b, h, i, j: table[(i - j) % 7 - 2]  # from -2: counted from the end
    o = attention(q, k, v, score_mod=add, mask_mod=kept, tensors={"bias": bias})
    exact = bias.double()
    ref, _ = dense.attention(q.double(), k.double(), v.double(), lambda s, b, h, i, j: s + exact[0, h, i, j], kept)
    dense.assert_close("o", o, ref, torch.float32)


def test_partials_are_not_callbacks(device):
    """(score, b, h, q, k) with two keywords given is a function of five, not of three."""
    cpu_only(device)
    q = torch.randn(1, 2, 9, 8)
    f = lambda s, b, h, i, j, *, scale, shift: s * scale + shift
    o = attention(q, q, q, score_mod=functools.partial(f, scale=2.0, shift=1.0))
    assert torch.equal(o, attention(q, q, q, score_mod="score * 2 + 1"))


def test_threads_are_torchs(device):
    cpu_only(device)
    q = torch.randn(1, 8, 300, 32)
    before = torch.get_num_threads()
    outs = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            outs.append(attention(q, q, q, is_causal=True))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*outs)


def test_output_keeps_the_querys_order(device):
    """As flex_attention and SDPA: transposing back costs nothing."""
    cpu_only(device)
    q = torch.randn(2, 30, 4, 16).transpose(1, 2)
    assert attention(q, q, q).stride() == q.stride()
    wide = torch.randn(2, 30, 4, 24).transpose(1, 2)
    assert attention(q, q, wide).transpose(1, 2).is_contiguous()

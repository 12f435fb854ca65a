"""Gradients: first and second ones against finite differences in double, and only those that are wanted. More of second
ones: test_second_derivatives.py."""

import dense
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import fovea
from fovea.torch import attention, flex_attention
from fovea.torch import runtime

BOTH = pytest.mark.parametrize("check", [gradcheck, gradgradcheck])


def double(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@BOTH
def test_everything(check):
    """q, k, v, captured tensors of rank 0 to 3, sinks, through o and lse."""
    q, k, v = double(2, 4, 3, 2), double(2, 2, 4, 2), double(2, 2, 4, 3)
    slopes, cap, table, sinks = double(4), double(), double(2, 4, 9), double(4)

    def run(q, k, v, slopes, cap, table, sinks):
        def mod(s, b, h, i, j):
            x = torch.where(i > j, s * torch.sigmoid(slopes[h]), torch.tanh(s) * cap)
            return x + table[b, h, i - j + 4] * cap + torch.exp(-(s * s)) * 0.5

        mask = lambda b, h, i, j: (i + j) % 5 != 0
        return attention(q, k, v, score_mod=mod, mask_mod=mask, sinks=sinks, return_lse=True, engine="reference")

    assert check(run, (q, k, v, slopes, cap, table, sinks), atol=1e-4 if check is gradgradcheck else 1e-5)


@BOTH
@pytest.mark.parametrize("layout", ["bshd", "sbhd", "thd"])
def test_layouts(check, layout):
    shape = {"bshd": (2, 4, 2, 3), "sbhd": (4, 2, 2, 3), "thd": (5, 2, 3)}[layout]
    options = ({"cu_seqlens": torch.tensor([0, 3, 5])} if layout == "thd" else {"seq_lens": torch.tensor([4, 2])})
    run = lambda q, k, v: attention(q, k, v, layout=layout, is_causal=True, engine="reference", **options)
    assert check(run, (double(*shape), double(*shape), double(*shape)))


BY_HAND = {"score_mod": "tanh(score)", "score_mod_bprop": "grad * (1 - tanh(score) * tanh(score))"}  # has no second one


@pytest.mark.parametrize("check, options", [(gradcheck, BY_HAND), (gradgradcheck, {})])
def test_dropout(check, options):
    run = lambda q, k, v: attention(q, k, v, dropout_p=0.3, seed=5, engine="reference", **options)
    assert check(run, (double(1, 2, 4, 3), double(1, 2, 4, 3), double(1, 2, 4, 3)))


def test_what_is_not_needed_is_not_computed(monkeypatch):
    """requires_grad decides what the backward is asked for."""
    seen = []
    original = runtime.backward
    monkeypatch.setattr(runtime, "backward", lambda at, *rest: seen.append(at.call.wants) or original(at, *rest))
    x = [torch.randn(1, 2, 9, 8) for _ in range(3)]
    table = torch.randn(2)
    mod = lambda s, b, h, i, j: s + table[h] * (i - j)
    for wanted in ((0,), (1, 2), (0, 2), (3,), (0, 1, 2, 3)):
        every = [*x, table]
        for i, tensor in enumerate(every):
            tensor.requires_grad_(i in wanted)
        o = flex_attention(*x, mod)
        torch.autograd.grad(o.square().sum(), [every[i] for i in wanted])
        assert seen[-1] == ",".join(("q", "k", "v", "_c0")[i] for i in wanted)
    for tensor in (*x, table):
        tensor.requires_grad_(False)
    assert flex_attention(*x, mod).grad_fn is None
    with torch.no_grad():
        assert flex_attention(x[0].requires_grad_(), *x[1:]).grad_fn is None
    with torch.inference_mode():
        assert flex_attention(*x).shape == x[0].shape


def test_lse_counts_where_it_is_used():
    q, k, v = (torch.randn(1, 2, 9, 8, requires_grad=True) for _ in range(3))
    o, lse = flex_attention(q, k, v, return_lse=True)
    exact = dense.doubled((q, k, v))
    scores = exact[0] @ exact[1].transpose(-1, -2) / 8**0.5
    for x, y in zip(
        torch.autograd.grad(lse.sum(), (q, k)), torch.autograd.grad(scores.logsumexp(-1).sum(), exact[:2])
    ):
        torch.testing.assert_close(x.double(), y, rtol=1e-5, atol=1e-6)


def test_keys_of_one_sequence_for_all():
    """flex_attention lets a batch of one key broadcast; its gradient is the sum."""
    q, k, v = (torch.randn(n, 2, 9, 8, requires_grad=True) for n in (3, 1, 1))
    o = flex_attention(q, k, v)
    other = flex_attention(q, k.repeat(3, 1, 1, 1), v.repeat(3, 1, 1, 1))
    assert torch.equal(o, other)
    ours, theirs = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (o, other))
    for x, y in zip(ours, theirs):
        torch.testing.assert_close(x, y)


def test_auxiliary_outputs():
    q, k, v = (torch.randn(2, 3, 9, 8) for _ in range(3))
    request = fovea.torch.AuxRequest(lse=True, max_scores=True)
    o, aux = flex_attention(q, k, v, lambda s, b, h, i, j: s * 2, return_aux=request)
    scores = q.double() @ k.double().transpose(-1, -2) / 8**0.5 * 2
    torch.testing.assert_close(aux.lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(aux.max_scores.double(), scores.amax(-1), rtol=1e-5, atol=1e-6)
    o, aux = flex_attention(q, k, v, return_aux=fovea.torch.AuxRequest(max_scores=True))
    assert aux.lse is None and aux.max_scores.shape == (2, 3, 9)

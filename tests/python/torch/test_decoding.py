"""Greedy decoding, token by token: numbers that move positions and lengths that grow build no new plans."""

import dense
import pytest
import torch

import fovea
from fovea.torch import attention, create_block_mask, flex_attention

TOKENS, WINDOW = 200, 32


def dynamic(n, tensors, padding):
    """All keys so far, and the padding of as many."""
    q, k, v = tensors
    offset, seen = n - 1, padding[:, :n]
    mask = lambda b, h, i, j: (i + offset >= j) & seen[b, j + 0]
    return q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], mask


def static(n, tensors, padding):
    """A cache of the full size."""
    q, k, v = tensors
    position = n - 1
    mask = lambda b, h, i, j: (j <= i + position) & padding[b, j]
    return q[:, :, n - 1 : n], k, v, mask


def filled(n, tensors, padding):
    """The same, as a number of places that hold a key."""
    q, k, v = tensors
    return q[:, :, n - 1 : n], k, v, lambda b, h, i, j: (j < n) & padding[b, j]


def sliding(n, tensors, padding):
    """The last keys, counted from where they stand in the whole sequence."""
    q, k, v = tensors
    first = max(0, n - WINDOW)
    offset = n - 1
    mask = lambda b, h, i, j: (j + first <= i + offset) & (i + offset - j - first < WINDOW) & padding[b, j + first]
    return q[:, :, n - 1 : n], k[:, :, first:n], v[:, :, first:n], mask


def backwards(n, tensors, padding):
    """An index that may be negative as far as the formula knows: counted from the newest key."""
    q, k, v = tensors
    last = n - 1
    seen = padding[:, :n]
    return q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], lambda b, h, i, j: seen[b, j - last]


@pytest.mark.parametrize("cache", [dynamic, static, filled, sliding, backwards])
@pytest.mark.parametrize("way", ["flex", "attention"])
def test_two_hundred_tokens_build_few_plans(cache, way, device):
    tensors = [torch.randn(2, 4, TOKENS, 8, device=device) for _ in range(3)]
    padding = torch.rand(2, TOKENS, device=device) < 0.8
    padding[:, 0] = True
    fovea.cache_clear()
    before = fovea.cache_stats()["builds"]
    for n in range(1, TOKENS + 1):
        q, k, v, mask = cache(n, tensors, padding)
        if way == "flex":
            o = flex_attention(q, k, v, block_mask=create_block_mask(mask, None, None, 1, k.shape[2]))
        else:
            o = attention(q, k, v, mask_mod=mask)
        if n % 20 == 1:
            ref, _ = dense.attention(q.double(), k.double(), v.double(), None, mask)
            dense.assert_close("o", o, ref, torch.float32)
    assert fovea.cache_stats()["builds"] - before <= 4


def test_a_number_is_bound_for_its_own_backward(device):
    """Two calls of one plan with other numbers, and their backwards afterwards."""
    q, k, v = (torch.randn(1, 2, 24, 8, device=device, requires_grad=True) for _ in range(3))
    bias = torch.randn(64, device=device, requires_grad=True)

    def run(attend, tensors, table, offset):
        score_mod = lambda s, b, h, i, j: s + table[i + offset]
        return attend(*tensors, score_mod, lambda b, h, i, j: j - offset <= i)

    def ours(q, k, v, score_mod, mask_mod):
        return attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod, return_lse=True)[1]

    doubles = dense.doubled((q, k, v, bias))
    offsets = (0, 5, 11, 0)
    results = [run(ours, (q, k, v), bias, offset) for offset in offsets]
    for offset, lse in zip(offsets, results):
        expected = run(lambda *given: dense.attention(*given)[1], doubles[:3], doubles[3], offset)
        dense.assert_close("lse", lse, expected, torch.float32)
        got = torch.autograd.grad(lse.square().sum(), (q, k, bias))
        wanted = torch.autograd.grad(expected.square().sum(), (doubles[0], doubles[1], doubles[3]))
        for name, a, b in zip(("dq", "dk", "dbias"), got, wanted):
            dense.assert_close(name, a, b, torch.float32, gradient=True)


def test_the_sign_of_a_number_is_part_of_the_formula(device):
    """A negative index counts from the end, a positive one does not."""
    q, k, v = (torch.randn(1, 1, 6, 8, device=device) for _ in range(3))
    bias = torch.randn(12, device=device)
    for offset in (3, -6, 0, -1):
        score_mod = lambda s, b, h, i, j: s + bias[j + offset]
        ref, _ = dense.attention(q.double(), k.double(), v.double(), score_mod, None)
        dense.assert_close("o", flex_attention(q, k, v, score_mod), ref, torch.float32)


def test_numbers_are_bound_on_gpus_too():
    """Without a GPU: by what is written down of a modifier."""
    from fovea.torch.steps import formulas_of, written

    def steps(offset, like):
        return written((None, lambda b, h, i, j: (i + offset >= j) & (i + offset - j < 128)), like)

    elsewhere = torch.empty(1, 2, 1, 8, device="meta")
    first, second = steps(7, elsewhere), steps(8, elsewhere)
    assert first.key() == second.key() and list(first.shifts) == [7, 7] and list(second.shifts) == [8, 8]
    assert "_i0" in formulas_of(first, (None, None)).mask
    training = elsewhere.clone().requires_grad_()  # diagonals that cuDNN knows
    assert steps(7, training).key() != steps(8, training).key()

"""Every published modifier and mask: output, lse and all gradients, captured ones included, against float64."""
import dataclasses
import warnings

import dense
import pytest
import torch
from cases import CASES
from torch.nn.attention import flex_attention as torch_flex

import fovea
from fovea.torch import create_block_mask, flex_attention
from pinned import expect


def draw(case, device, dtype):
    n = case.sizes
    q = torch.randn(n.B, n.H, n.S, n.D)
    k, v = torch.randn(n.B, n.Hkv, n.S, n.D), torch.randn(n.B, n.Hkv, n.S, n.D)
    tensors = [x.to(device, dtype).requires_grad_() for x in (q, k, v)]
    captured = {name: x.to(device) for name, x in case.captured(n).items()}
    for x in captured.values():
        x.requires_grad_(x.is_floating_point())
    return tensors, captured


def functions(case, captured):
    return (case.mod and case.mod(captured, case.sizes)), (case.mask and case.mask(captured, case.sizes))


def compare(case, device, dtype):
    if device.type != "cpu":  # a width that every engine of a GPU has
        case = dataclasses.replace(case, sizes=dataclasses.replace(case.sizes, D=64))
    tensors, captured = draw(case, device, dtype)
    mod, mask = functions(case, captured)
    n = case.sizes
    block_mask = mask and create_block_mask(mask, None, None, n.S, n.S, device=device)
    o, lse = flex_attention(*tensors, mod, block_mask, enable_gqa=n.H != n.Hkv, return_lse=True)
    grad_o, grad_lse = torch.randn_like(o), torch.randn_like(lse).masked_fill(lse.isinf(), 0)
    inputs = [*tensors, *(x for x in captured.values() if x.requires_grad)]
    grads = torch.autograd.grad([o, lse], inputs, [grad_o, grad_lse])

    ref, ref_lse, ref_grads = with_all_scores(case, tensors, captured, grad_o, grad_lse, torch.float64)
    dense.assert_close("o", o, ref, dtype)
    dense.assert_close("lse", lse, ref_lse, dtype)
    _, _, rounded = with_all_scores(case, tensors, captured, grad_o, grad_lse, torch.float32)
    names = ["dq", "dk", "dv", *(f"d {name}" for name, x in captured.items() if x.requires_grad)]
    for name, x, reference, other, source in zip(names, grads, ref_grads, rounded, inputs):
        assert x.dtype == source.dtype and x.shape == source.shape
        kept = dtype if source.dtype in (dtype, torch.float32) else source.dtype
        # A sum whose terms cancel has no relative error to speak of: what float32 alone does to it is allowed too.
        cancels = dense.relative_error(other, reference) > dense.LIMITS[torch.float32] / 4
        dense.assert_close(name, x, reference, kept, gradient=True, slack=32.0 if cancels else 1.0)


def with_all_scores(case, tensors, captured, grad_o, grad_lse, dtype):
    """(o, lse, gradients) with every score in memory, in this type."""
    exact = [x.detach().to(dtype).requires_grad_() for x in tensors]
    kept = {name: x.detach().to(dtype).requires_grad_() if x.is_floating_point() else x for name, x in captured.items()}
    o, lse = dense.attention(*exact, *functions(case, kept))
    inputs = [*exact, *(x for x in kept.values() if x.requires_grad)]
    finite = lse.masked_fill(lse.isinf(), 0)
    grads = torch.autograd.grad([o, finite], inputs, [grad_o.to(dtype), grad_lse.to(dtype)], allow_unused=True)
    return o, lse, [torch.zeros_like(x) if grad is None else grad for grad, x in zip(grads, inputs)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_float64(case, device):
    for dtype in [torch.float32] if device.type == "cpu" else [torch.bfloat16, torch.float16]:
        expect(f"{case.name} {str(dtype)[6:]}", device, lambda: compare(case, device, dtype))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_torchs_own_flex_attention(case, device):
    """The same functions, unchanged, through torch's eager flex_attention in float64."""
    if device.type != "cpu":
        pytest.skip("compared in float64 on the CPU")
    tensors, captured = draw(case, device, torch.float32)
    tensors = [x.detach() for x in tensors]
    captured = {name: x.detach() for name, x in captured.items()}
    mod, mask = functions(case, captured)
    n = case.sizes
    block_mask = mask and create_block_mask(mask, None, None, n.S, n.S)
    o = flex_attention(*tensors, mod, block_mask, enable_gqa=n.H != n.Hkv)
    exact = {name: x.double() if x.is_floating_point() else x for name, x in captured.items()}
    mod, mask = functions(case, exact)
    theirs = mask and torch_flex.create_block_mask(mask, n.B, n.H, n.S, n.S, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it was not compiled
        ref = torch_flex.flex_attention(*(x.double() for x in tensors), mod, theirs, enable_gqa=n.H != n.Hkv)
    dense.assert_close("o", o, ref, torch.float32)


def test_there_are_at_least_forty():
    assert len(CASES) >= 40 and len({case.name for case in CASES}) == len(CASES)
    assert issubclass(fovea.Unsupported, NotImplementedError)

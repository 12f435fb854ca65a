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
        x.requires_grad_(case.learn and x.is_floating_point())
    return tensors, captured


def functions(case, captured):
    return (case.mod and case.mod(captured, case.sizes)), (case.mask and case.mask(captured, case.sizes))


def on_device(case, device):
    """A width that every engine of a GPU has."""
    return case if device.type == "cpu" else dataclasses.replace(case, sizes=dataclasses.replace(case.sizes, D=64))


def compare(case, device, dtype):
    """Everything: o, lse, and gradients through both of all inputs and all that is captured."""
    case = on_device(case, device)
    tensors, captured = draw(case, device, dtype)
    o, lse = run(case, tensors, captured, return_lse=True)
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
        # A sum whose terms cancel has no relative error to speak of: rounding counts as it does in plain float32.
        slack = max(1.0, dense.relative_error(other, reference) / 1.5e-7)
        dense.assert_close(name, x, reference, kept, gradient=True, slack=slack)


def run(case, tensors, captured, **options):
    mod, mask = functions(case, captured)
    n = case.sizes
    block_mask = mask and create_block_mask(mask, None, None, n.S, n.S, device=tensors[0].device)
    return flex_attention(*tensors, mod, block_mask, enable_gqa=n.H != n.Hkv, **options)


def compare_without_captured(case, device, dtype, backward):
    """What most models ask for: o, and gradients of q, k, v."""
    case = on_device(case, device)
    tensors, captured = draw(case, device, dtype)
    captured = {name: x.detach() for name, x in captured.items()}
    tensors = [x.detach().requires_grad_(backward) for x in tensors]
    o = run(case, tensors, captured)
    exact = [x.detach().double().requires_grad_(backward) for x in tensors]
    kept = {name: x.double() if x.is_floating_point() else x for name, x in captured.items()}
    ref, _ = dense.attention(*exact, *functions(case, kept))
    dense.assert_close("o", o, ref, dtype)
    if not backward:
        return
    grad = torch.randn_like(o)
    found = torch.autograd.grad(o, tensors, grad)
    wanted = torch.autograd.grad(ref, exact, grad.double(), allow_unused=True)  # a modifier may ignore the score
    for name, x, reference in zip(("dq", "dk", "dv"), found, wanted):
        reference = torch.zeros_like(x) if reference is None else reference
        dense.assert_close(name, x, reference, dtype, gradient=True)


def with_all_scores(case, tensors, captured, grad_o, grad_lse, dtype):
    """(o, lse, gradients) with every score in memory, in this type."""
    exact = [x.detach().to(dtype).requires_grad_() for x in tensors]
    kept = {
        name: x.detach().to(dtype).requires_grad_(x.requires_grad) if x.is_floating_point() else x
        for name, x in captured.items()
    }
    o, lse = dense.attention(*exact, *functions(case, kept))
    inputs = [*exact, *(x for x in kept.values() if x.requires_grad)]
    finite = lse.masked_fill(lse.isinf(), 0)
    grads = torch.autograd.grad(
        [o, finite], inputs, [grad_o.to(dtype), grad_lse.to(dtype)], allow_unused=True
    )
    return o, lse, [torch.zeros_like(x) if grad is None else grad for grad, x in zip(grads, inputs)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_float64(case, device):
    """On a GPU, whose engines give no gradients of lse and few of what is captured, those of q, k and v; where these are
    refused, the forward alone. Building takes most of a second each, so f16 goes forward only."""
    if device.type == "cpu":
        compare(case, device, torch.float32)
        return
    if case.name == "stick_breaking_gate" and torch.__version__.startswith("2.11."):
        pytest.skip("torch 2.11 cannot vmap logsigmoid on CUDA: the definition itself fails")
    bf16, f16 = torch.bfloat16, torch.float16
    attempt = lambda dtype, backward: lambda: compare_without_captured(case, device, dtype, backward)
    if not expect(f"{case.name} bfloat16 training", device, attempt(bf16, True)):
        expect(f"{case.name} bfloat16 forward", device, attempt(bf16, False))
    expect(f"{case.name} float16 forward", device, attempt(f16, False))


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

"""What every test is compared with: attention in float64 with all scores in memory, its gradients by autograd. Modifiers
are mapped over every score as torch's own flex_attention maps them."""

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

# Relative error of outputs by the type of the tensors; gradients may have three times that.
LIMITS = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 6e-3, torch.float16: 8e-4}


def over_all(function, prefix):
    """The function over [B, H, Sq, Skv]; the score, if there is one, goes along."""
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=prefix + dims, out_dims=0)
    return function


def attention(q, k, v, score_mod=None, mask_mod=None, scale=None, sink=None):
    """(o, lse) of [B, H, S, D] tensors."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    at = [torch.arange(n, device=q.device, dtype=torch.int32) for n in scores.shape]
    with TransformGetItemToIndex():
        if score_mod is not None:
            scores = over_all(score_mod, (0,))(scores, *at)
        if mask_mod is not None:
            keep = over_all(mask_mod, ())(*at)
            scores = scores.masked_fill(~keep.expand(scores.shape), float("-inf"))
    beside = [] if sink is None else [sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)]
    lse = torch.cat([scores, *beside], -1).logsumexp(-1)
    p = torch.where(scores == -float("inf"), 0.0, (scores - lse.masked_fill(lse.isinf(), 0.0).unsqueeze(-1)).exp())
    return p @ v, lse


def relative_error(x, reference):
    """||x - ref|| / ||ref||; infinities must be equal, a reference of zero must be met."""
    x, reference = x.detach().double(), reference.detach().double()
    infinite = reference.isinf()
    assert torch.equal(x[infinite], reference[infinite]), "infinities differ"
    x, reference = x[~infinite], reference[~infinite]
    norm = reference.norm()
    return float((x - reference).norm() / norm) if norm > 0 else float((x - reference).norm())


def assert_close(name, x, reference, dtype, gradient=False, slack=1.0):
    limit = LIMITS[dtype] * (3 if gradient else 1) * slack
    error = relative_error(x, reference)
    assert error <= limit, f"{name}: relative error {error:.2e} above {limit:.1e}"


def doubled(tensors):
    """Leaves of the same values in double."""
    return [x.detach().double().requires_grad_() for x in tensors]


def assert_derived(o, tensors, reference, exact, slack=1.0):
    """An output and its gradients by `tensors` beside a reference and its gradients by `exact`."""
    assert_close("o", o, reference, o.dtype)
    grad = torch.randn_like(o)
    wanted = torch.autograd.grad(reference, exact, grad.double())
    for i, (x, y) in enumerate(zip(torch.autograd.grad(o, tensors, grad), wanted)):
        assert_close(f"gradient {i}", x, y, o.dtype, gradient=True, slack=slack)


def assert_right(o, tensors, score_mod=None, mask_mod=None):
    """The output of a call, by the definition."""
    exact, _ = attention(*(x.detach().double() for x in tensors), score_mod, mask_mod)
    assert_close("o", o, exact, o.dtype)

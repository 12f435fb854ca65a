"""Second derivatives on the CPU: against autograd through dense attention in float64, and what has none. By finite
differences: test_gradients.py."""

import dense
import pytest
import torch

import fovea
from fovea.torch import attention, flex_attention
from fovea.torch import runtime


def double(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def second(attend, inputs, dtype):
    """Gradients of a function of the gradients of attend(*inputs), by every input and by what came in."""
    inputs = [x.detach().to(dtype).requires_grad_() for x in inputs]
    o = attend(*inputs)
    torch.manual_seed(7)
    weight = torch.randn(o.shape, dtype=torch.float64).to(dtype).requires_grad_()
    first = torch.autograd.grad((o * weight).sum(), inputs, create_graph=True)
    loss = sum((g * torch.randn(g.shape, dtype=torch.float64).to(dtype)).sum() for g in first)
    return torch.autograd.grad(loss, [*inputs, weight], allow_unused=True)


DOCUMENTS = torch.tensor([0] * 5 + [1] * 3 + [2] * 9)


def softcap(s, b, h, i, j):
    return 2 * torch.tanh(s / 2)


I, J = torch.arange(17)[:, None], torch.arange(17)[None, :]


# name -> (score_mod, the same of all scores at once, mask_mod, shapes of what is captured, number of key heads)
# torch's own flex_attention has no second derivative through what a modifier captures.
CASES = {
    "none": (None, None, None, (), 4),
    "groups": (None, None, None, (), 2),
    "causal": (None, None, lambda b, h, i, j: i >= j, (), 4),
    "softcap": (softcap, lambda s: 2 * torch.tanh(s / 2), None, (), 2),
    "square": (lambda s, *at: s * s * 0.3 + s, lambda s: s * s * 0.3 + s, None, (), 4),
    "documents": (softcap, lambda s: 2 * torch.tanh(s / 2), lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j], (), 4),
    "slopes": (
        lambda s, b, h, i, j, slopes: s + slopes[h] * (j - i) * 0.1,
        lambda s, slopes: s + slopes[:, None, None] * (J - I) * 0.1,
        lambda b, h, i, j: i >= j,
        ((4,),),
        4,
    ),
    "bias": (lambda s, b, h, i, j, bias: s + bias[h, i, j], lambda s, bias: s + bias, None, ((4, 17, 17),), 4),
    "product": (
        lambda s, b, h, i, j, t: s * torch.sigmoid(t[h, i] * t[h, j]),
        lambda s, t: s * torch.sigmoid(t[:, :, None] * t[:, None, :]),
        None,
        ((4, 17),),
        4,
    ),
    "learned cap": (
        lambda s, b, h, i, j, cap: cap[h] * torch.tanh(s / cap[h]),
        lambda s, cap: cap[:, None, None] * torch.tanh(s / cap[:, None, None]),
        None,
        ((4,),),
        2,
    ),
}


def dense_attention(q, k, v, mod, mask):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores if mod is None else mod(scores)
    if mask is not None:
        scores = scores.masked_fill(~mask(0, 0, I, J), -float("inf"))
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_as_dense_attention(name, dtype):
    mod, whole, mask, shapes, heads = CASES[name]
    torch.manual_seed(1)
    inputs = [double(2, 4, 17, 8), double(2, heads, 17, 8), double(2, heads, 17, 6)]
    inputs += [(torch.rand(shape, dtype=torch.float64) + 0.5).requires_grad_() for shape in shapes]
    options = {"engine": "reference"} if dtype == torch.float64 else {}

    def ours(q, k, v, *captured):
        return attention(q, k, v, score_mod=mod and (lambda *at: mod(*at, *captured)), mask_mod=mask, **options)

    def theirs(q, k, v, *captured):
        return dense_attention(q, k, v, whole and (lambda s: whole(s, *captured)), mask)

    expected = second(theirs, inputs, torch.float64)
    limit = 2e-5 if dtype == torch.float32 else 1e-12
    for i, (x, y) in enumerate(zip(second(ours, inputs, dtype), expected)):
        assert dense.relative_error(x, y) < limit, (name, i, dense.relative_error(x, y))


@pytest.mark.parametrize("times", [1, 2])
def test_allow_unused(times):
    """Through one input only; a call that was looked up, and one that was not."""
    for _ in range(times):
        q, k, v = (torch.randn(1, 2, 9, 4, requires_grad=i == 0) for i in range(3))
        other = torch.ones(3, requires_grad=True)
        (g,) = torch.autograd.grad(flex_attention(q, k, v, softcap).square().sum(), q, create_graph=True)
        by_q, by_other = torch.autograd.grad(g.square().sum(), (q, other), allow_unused=True)
        assert by_other is None
    q, k, v = (x.detach().double() for x in (q, k, v))
    q.requires_grad_()
    (g,) = torch.autograd.grad(dense.attention(q, k, v, softcap)[0].square().sum(), q, create_graph=True)
    (expected,) = torch.autograd.grad(g.square().sum(), q)
    dense.assert_close("q", by_q, expected, torch.float32, slack=10)


def test_a_gradient_penalty_trains():
    """Backward through a loss of gradients, twice over the same weights."""
    torch.manual_seed(2)
    weight = torch.nn.Parameter(torch.randn(8, 8) * 0.3)
    x = torch.randn(2, 2, 16, 8, requires_grad=True)

    def penalty(attend, x, weight):
        y = x @ weight
        (g,) = torch.autograd.grad(attend(y, y, y).sin().sum(), x, create_graph=True)
        return g.square().sum()

    penalty(flex_attention, x, weight).backward()
    wide = dense.doubled((x, weight))
    (expected,) = torch.autograd.grad(penalty(lambda *qkv: dense.attention(*qkv)[0], *wide), wide[1])
    dense.assert_close("weight", weight.grad, expected, torch.float32, slack=20)


def test_forward_mode():
    import torch.autograd.forward_ad as forward_ad

    q, k, v, t = (torch.randn(1, 2, 9, 4, dtype=torch.float64) for _ in range(4))
    with forward_ad.dual_level():
        o, lse = attention(forward_ad.make_dual(q, t), k, v, return_lse=True, engine="reference")
        got = [forward_ad.unpack_dual(x).tangent for x in (o, lse)]
        o, lse = dense.attention(forward_ad.make_dual(q, t), k, v)
        expected = [forward_ad.unpack_dual(x).tangent for x in (o, lse)]
    for name, x, y in zip(("o", "lse"), got, expected):
        dense.assert_close(name, x, y, torch.float64, slack=3)


def test_a_third_derivative_is_refused_with_a_way_out():
    q = torch.randn(1, 1, 4, 4, requires_grad=True)
    (g,) = torch.autograd.grad(flex_attention(q, q, q).sum(), q, create_graph=True)
    (g,) = torch.autograd.grad(g.square().sum(), q, create_graph=True)
    with pytest.raises(fovea.Unsupported, match="no third one.*torch.nn.attention.flex_attention"):
        g.sum().backward()


def test_torch_func_names_what_it_cannot_differentiate():
    q = torch.randn(1, 1, 4, 4)
    loss = lambda q: flex_attention(q, q, q).sum()
    grad, jvp = torch.func.grad, torch.func.jvp
    with pytest.raises(fovea.Unsupported, match="no third one"):
        grad(lambda q: grad(lambda q: grad(loss)(q).sum())(q).sum())(q)
    for transform in (lambda f: grad(f)(q), lambda f: jvp(f, (q,), (q,))):
        with pytest.raises(fovea.Unsupported, match="torch.func.jvp of torch.func.grad"):
            transform(lambda q: jvp(loss, (q,), (q,))[1])


def test_a_derivative_by_hand_has_none():
    q, k, v = (torch.randn(1, 1, 4, 4, requires_grad=True) for _ in range(3))
    o = attention(q, k, v, score_mod="2 * score", score_mod_bprop="2 * grad")
    (g,) = torch.autograd.grad(o.sum(), q, create_graph=True)
    with pytest.raises(fovea.Unsupported, match="bprop"):
        g.sum().backward()


def test_first_derivatives_cost_no_tangent(monkeypatch):
    monkeypatch.setattr(runtime, "run_with_numbers", None)
    q = torch.randn(1, 1, 4, 4, requires_grad=True)
    (g,) = torch.autograd.grad(flex_attention(q, q, q).sum(), q, create_graph=True)
    assert g.requires_grad


def loss_of(attend):
    return lambda q, k, v: attend(q, k, v).sin().sum()


@pytest.mark.parametrize("transform", ["jacrev of grad", "grad of grad", "hessian", "jacfwd", "jvp"])
def test_functional_transforms(transform):
    q, k, v, t = (torch.randn(1, 2, 5, 3, dtype=torch.float64) for _ in range(4))
    ours = lambda q, k, v: attention(q, k, v, score_mod=softcap, engine="reference")
    theirs = lambda q, k, v: dense_attention(q, k, v, lambda s: 2 * torch.tanh(s / 2), None)
    apply = {
        "jacrev of grad": lambda f: torch.func.jacrev(torch.func.grad(loss_of(f)))(q, k, v),
        "grad of grad": lambda f: torch.func.grad(lambda *x: (torch.func.grad(loss_of(f))(*x) * t).sum())(q, k, v),
        "hessian": lambda f: torch.func.hessian(loss_of(f))(q, k, v),
        "jacfwd": lambda f: torch.func.jacfwd(f)(q, k, v),
        "jvp": lambda f: torch.func.jvp(f, (q, k, v), (t, t, t))[1],
    }[transform]
    dense.assert_close(transform, apply(ours), apply(theirs), torch.float64, slack=10)


def test_under_a_dispatch_mode():
    from torch.utils.flop_counter import FlopCounterMode

    q, k, v = (torch.randn(1, 2, 9, 4) for _ in range(3))
    expected = second(lambda q, k, v: dense_attention(q, k, v, None, None), (q, k, v), torch.float64)
    with FlopCounterMode(display=False):
        got = second(lambda q, k, v: attention(q, k, v), (q, k, v), torch.float32)
    for x, y in zip(got, expected):
        dense.assert_close("mode", x, y, torch.float32, slack=10)

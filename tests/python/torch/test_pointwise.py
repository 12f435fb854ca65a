"""Functions of torch inside modifiers, with their derivatives, against torch itself in float64; and errors in the user's
words."""

import math

import dense
import numpy
import pytest
import torch
import torch.nn.functional as F

import fovea
from fovea.torch import attention, create_block_mask, flex_attention

FUNCTIONS = {
    "atan": torch.atan,
    "arctan": lambda s: (s * 30).arctan(),
    "atan2": lambda s: torch.atan2(s, torch.cos(3 * s)),
    "asin": lambda s: torch.asin(torch.tanh(s) * 0.9),
    "acos": lambda s: torch.acos(torch.tanh(s) * 0.9),
    "asinh": torch.asinh,
    "acosh": lambda s: torch.acosh(1.1 + s * s),
    "atanh": lambda s: torch.atanh(torch.tanh(s) * 0.9),
    "hardswish": lambda s: F.hardswish(s * 3),
    "hardsigmoid": lambda s: F.hardsigmoid(s * 3),
    "selu": F.selu,
    "celu": lambda s: F.celu(s, alpha=0.7),
    "threshold": lambda s: F.threshold(s, 0.1, -2.0),
    "hardshrink": lambda s: F.hardshrink(s, 0.3),
    "softshrink": lambda s: F.softshrink(s, 0.3),
    "tanhshrink": F.tanhshrink,
    "prelu": lambda s: F.prelu(s.view(1), torch.tensor([0.3], dtype=s.dtype)),
    "nan_to_num": lambda s: torch.nan_to_num(torch.where(s > 0.5, math.nan, torch.where(s < -1, math.inf, s)), 0.25, posinf=1.5),
    "copysign": lambda s: torch.copysign(s * s, s),
    "logaddexp2": lambda s: torch.logaddexp2(s, -s),
    "xlogy": lambda s: torch.xlogy(s, 2 + s * s),
    "ndtr": torch.special.ndtr,
    "entr": lambda s: torch.special.entr(1 + s * s),
    "sinc": torch.sinc,
    "deg2rad": lambda s: torch.deg2rad(s) * 50,
    "signbit": lambda s: torch.where(torch.signbit(s), s, 2 * s),
    "shapes": lambda s: s.unsqueeze(0).squeeze(0).view(1).reshape(()).expand(1).flatten().squeeze(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_and_its_derivative(name):
    tensors = [torch.randn(1, 2, 9, 8, requires_grad=True) for _ in range(3)]
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    score_mod = lambda s, b, h, i, j: FUNCTIONS[name](s)
    o = flex_attention(*tensors, score_mod)
    scores = doubles[0] @ doubles[1].transpose(-1, -2) * 8**-0.5
    flat = torch.stack([FUNCTIONS[name](s).reshape(()) for s in scores.flatten()])
    expected = torch.softmax(flat.view(scores.shape), -1) @ doubles[2]
    dense.assert_close("o", o, expected, torch.float32)
    got, wanted = (torch.autograd.grad(x.square().sum(), given) for x, given in ((o, tensors), (expected, doubles)))
    for label, a, b in zip(("dq", "dk", "dv"), got, wanted):
        dense.assert_close(label, a, b, torch.float32, gradient=True, slack=2)


EDGES = torch.tensor([0.25, 1.5, 3.0, 7.5, 8.0])
LOOKUPS = {
    "bucketize": lambda x: torch.bucketize(x, EDGES),
    "bucketize_right": lambda x: torch.bucketize(x, EDGES, right=True),
    "searchsorted": lambda x: torch.searchsorted(EDGES, x),
    "searchsorted_right": lambda x: torch.searchsorted(EDGES, x, side="right"),
    "isin": lambda x: torch.isin(x, torch.tensor([1, 3, 8])).int(),
}


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("compiled", [False, True])
def test_short_tables_are_searched(name, compiled):
    """The buckets of distances, as T5 makes them."""
    q, k, v = (torch.randn(1, 2, 10, 8) for _ in range(3))
    weights = torch.randn(6)
    call = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + weights[LOOKUPS[name](i - j)])
    o = (torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call)(q, k, v)
    distances = torch.arange(10)[:, None] - torch.arange(10)
    scores = q.double() @ k.double().transpose(-1, -2) * 8**-0.5 + weights[LOOKUPS[name](distances)].double()
    dense.assert_close("o", o, torch.softmax(scores, -1) @ v.double(), torch.float32)


def test_an_embedding_is_a_table():
    q, k, v = (torch.randn(1, 2, 10, 8) for _ in range(3))
    weight = torch.randn(19, 2)
    o = flex_attention(q, k, v, lambda s, b, h, i, j: s + F.embedding(i - j + 9, weight)[h])
    assert torch.equal(o, flex_attention(q, k, v, lambda s, b, h, i, j: s + weight[i - j + 9, h]))


def test_errors_name_what_is_captured():
    q = torch.randn(1, 2, 8, 4)
    short, wide, there, array = torch.randn(5), torch.randn(3, 5), torch.randn(8, device="meta"), numpy.ones(2)
    cases = {
        "tensor short: extent 5 of index 0, which is k, must cover": lambda s, b, h, i, j: s + short[j],
        "the captured tensor 'wide' of shape \\[3, 5\\] as a number": lambda s, b, h, i, j: s + wide,
        "the captured tensor 'there' of shape \\[8\\] is on meta": lambda s, b, h, i, j: s + there[j],
        "'array', an array of NumPy's, with a traced index": lambda s, b, h, i, j: s + array[h],
        "an array of NumPy's of shape \\[2\\]": lambda s, b, h, i, j: s + array,
    }
    for text, score_mod in cases.items():
        for _ in range(2):  # the second time the call is known
            with pytest.raises(fovea.InvalidArgument, match=text):
                flex_attention(q, q, q, score_mod)
        with pytest.raises(fovea.InvalidArgument, match=text):
            attention(q, q, q, score_mod=score_mod, dropout_p=0.1)
    mask = create_block_mask(lambda b, h, i, j: short[j] > 0, None, None, 8, 8)
    with pytest.raises(fovea.InvalidArgument, match="tensor short"):
        flex_attention(q, q, q, block_mask=mask)


def test_advice_fits():
    q = torch.randn(1, 2, 8, 4)
    cases = {
        "attention takes the softmax": lambda s, b, h, i, j: torch.softmax(s, -1),
        "torch.tanh for math.tanh": lambda s, b, h, i, j: math.tanh(s),
        "give it as tensors={'bias': ...}": "score + bias[h]",
        "give it in tensors={...} or scalars={...}": "score * softcap_of_mine",
    }
    for text, score_mod in cases.items():
        with pytest.raises(fovea.InvalidArgument) as caught:
            attention(q, q, q, score_mod=score_mod)
        assert text in str(caught.value)

"""The tracer: what torch's functions mean in a formula, and what can't be traced."""

import functools
import math
import re

import numpy
import pytest
import torch
import torch.nn.functional as F

import fovea
from fovea.torch import TraceError, create_block_mask, flex_attention
from fovea.torch.modifiers import traced

# Each is applied to a float x in [-2, 2], an int i in [-7, 7] and the head h; torch computes the same on real tensors.
# fmt: off
POINTWISE = {
    "arithmetic": lambda x, i, h: (x + i) * 2 - i / 3 + (-x) + (+x) + 1 - (2 - x) + 3 / (x + 5) + abs(x) + abs(i),
    "power": lambda x, i, h: (x + 3) ** 2 + (x + 3) ** 1.5 + i ** 2 + 2.0 ** i + (x + 3) ** h + torch.pow(x + 3, -1),
    "floor_division": lambda x, i, h: i // 3 + i % 3 + i // -2 + i % -2 + x // 0.7 + x % 0.7 + 7 // (h + 1) + 7 % (h + 2),
    "trunc_division": lambda x, i, h: torch.div(i, 3, rounding_mode="trunc") + torch.fmod(i, 3) + torch.fmod(x, 0.7),
    "floor_divide": lambda x, i, h: torch.floor_divide(i, 4) + torch.remainder(i, -4) + torch.true_divide(i, 4) + i.div(2),
    "bits": lambda x, i, h: (i & 6) + (i | 1) + (i ^ 5) + (~i) + (i << 2) + (i >> 1) + torch.bitwise_and(i, h) + (1 << h),
    "compare": lambda x, i, h: (x < 0.5) * 1.0 + (i >= h) * 2 + (i == 3) + (x != 0) + (x > i) * (i <= 2) + torch.ge(i, 1),
    "logic": lambda x, i, h: (torch.logical_and(x > 0, i > 0) | ~(i < 3) ^ torch.logical_not(x)).float()
    + torch.logical_or(i, x).int() + torch.logical_xor(i > 0, h > 1),
    "bools": lambda x, i, h: ((i > 0) & True) + ((i > 0) | (h > 0)) + ((i > 0) == (h > 0)) + ((i > 2) ^ True) + (x > 0) * x,
    "where": lambda x, i, h: torch.where(i > 0, x, -1) + torch.where(i > 2, 1, 2) + torch.where(h > 1, i, 0.5),
    "exp_log": lambda x, i, h: x.exp() + torch.exp2(x) + torch.expm1(x) + torch.log(x + 3) + (x + 3).log2() + torch.log1p(x + 2)
    + torch.log10(x + 3),
    "roots": lambda x, i, h: torch.sqrt(x + 3) + (x + 3).rsqrt() + torch.reciprocal(x + 3) + torch.square(i) + torch.hypot(x, x),
    "hyperbolic": lambda x, i, h: torch.tanh(x) + torch.sinh(x) + torch.cosh(x) + torch.sin(x) + torch.cos(i) + torch.tan(x * 0.3),
    "sigmoids": lambda x, i, h: torch.sigmoid(x) + F.logsigmoid(x) + F.softplus(x) + F.softplus(x, beta=2.0, threshold=1.0)
    + torch.special.expit(x) + torch.logit(torch.sigmoid(x)),
    "activations": lambda x, i, h: F.relu(x) + F.silu(x) + F.gelu(x) + F.gelu(x, approximate="tanh") + F.leaky_relu(x, 0.1)
    + F.elu(x, 0.5) + F.hardtanh(x, -0.5, 1.0) + F.relu6(x * 4) + F.mish(x) + F.softsign(x),
    "erf": lambda x, i, h: torch.erf(x) + torch.erfc(x),
    "rounding": lambda x, i, h: torch.floor(x) + x.ceil() + torch.round(x * 2) + torch.trunc(x * 2) + x.frac() + i.floor()
    + torch.sign(x) + torch.sign(i),
    "extremes": lambda x, i, h: torch.minimum(x, x * x) + torch.maximum(i, h) + torch.max(x, -x) + x.min(x * 2) + torch.fmax(x, -x)
    + torch.clamp(x, -1, 1) + i.clamp(min=-2) + i.clamp(max=h) + torch.clip(x, min=0.0) + x.clamp_min(0.5),
    "casts": lambda x, i, h: x.to(torch.int32) + i.float() + i.to(torch.bool) + (i > 0).int() + x.long() + (x * 3).int().double()
    + i.to(x.dtype) + x.type_as(i) + h.bool(),
    "constants": lambda x, i, h: x + torch.tensor(2.5) + x.new_ones(()) + torch.zeros_like(x) + torch.full((), 3.0)
    + torch.full_like(x, 2.0) + x.new_full((), 1.5) + torch.ones((), dtype=torch.int32) + i.new_zeros((), dtype=torch.bool),
    "tests": lambda x, i, h: torch.isnan(x) + torch.isinf(x) * 2 + torch.isfinite(x) * 1.0,
    "mixed": lambda x, i, h: torch.lerp(x, x * 2, 0.25) + torch.addcmul(x, x, x, value=0.5) + torch.logaddexp(x, -x)
    + x.masked_fill(i > 0, 3.0) + torch.add(x, i, alpha=2) + torch.sub(x, i, alpha=3) + torch.rsub(x, 2.0),
    "steps": lambda x, i, h: torch.heaviside(x, torch.tensor(0.5)) + torch.ldexp(x, h),
    "numbers": lambda x, i, h: x * math.pi + 1e-30 + 3.0e20 * 0 + x * True + i * 16777216 - i * 16777216,
}
# fmt: on
SHAPE = (1, 4, 5, 15)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_functions(name):
    """The function of real tensors, and its formula evaluated by the library at every position."""
    function = POINTWISE[name]
    values = torch.linspace(-2, 2, 5)
    mod = lambda s, b, h, q, k: function(s, k - 7, h)
    program = program_of(mod)
    h, q, k = torch.meshgrid(*(torch.arange(n, dtype=torch.int32) for n in SHAPE[1:]), indexing="ij")
    expected = function(values[q.long()], k - 7, h).double().expand(h.shape)
    found = torch.tensor(
        [
            [
                [program.evaluate(float(values[j]), (0, i, j, n), (1, 4, 4, 5, 15))[0] for n in range(15)]
                for j in range(5)
            ]
            for i in range(4)
        ],
        dtype=torch.float64,
    )
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)


def program_of(mod):
    return fovea._core.Program(f'mod="{traced(mod).mod}"')


def run(mod=None, mask=None):
    q = torch.randn(2, 4, 12, 8)
    block = mask and create_block_mask(mask, None, None, 12, 12)
    return flex_attention(q, q, q, mod, block)


def test_a_trace_is_text():
    table = torch.randn(4, 16)
    found = traced(lambda s, b, h, q, k: torch.where(q >= k, s + table[h, q - k + 3], -float("inf")))
    assert found.text().split("\n")[0] == (
        "let _t0 = q >= k; let _t1 = q - k; let _t2 = _t1 + 3; let _t3 = _t2 < 0 ? _t2 + #0.1 : _t2; "
        "let _t4 = _c0[h, _t3]; let _t5 = score + _t4; let _t6 = _t0 ? _t5 : (-inf); _t6"
    )
    assert found.tensors == [table] and found.uses == ["h-"]


def test_a_tensor_is_captured_once():
    table = torch.randn(4)
    assert len(traced(lambda s, b, h, q, k: s + table[h] * table[h] + table[0] + table[-1]).tensors) == 3
    shared = traced(lambda s, b, h, q, k: s + table[h], lambda b, h, q, k: table[h] > 0)
    assert len(shared.tensors) == 1


def test_indices_that_cannot_be_negative_are_not_wrapped():
    table = torch.randn(4, 64)
    found = traced(lambda s, b, h, q, k: s + table[h % 2, (q // 2 + k).clamp(max=63)] + table[h, (q - k).abs()])
    assert "#" not in found.mod


def test_smallest_and_largest_numbers():
    inf = float("inf")
    for number, text in (
        (1e-50, "0.0"),
        (1e50, "inf"),
        (-1e50, "(-inf)"),
        (-inf, "(-inf)"),
        (float("nan"), "nan"),
        (3.4028234e38, "3.4028234e+38"),
        (1e-45, "1e-45"),
        (-0.0, "(-0.0)"),
    ):
        assert traced(lambda s, b, h, q, k: s * number).mod.startswith(f"let _t0 = score * {text};")


# fmt: off
BRANCHES = {
    "if": (lambda s, b, h, q, k: s if q > k else -s, "a Python branch", r"torch\.where"),
    "and": (lambda s, b, h, q, k: s * (q > k and h > 1), "a Python branch", r"torch\.where"),
    "min": (lambda s, b, h, q, k: min(s, 1.0), "a Python branch", r"torch\.where"),
    "item": (lambda s, b, h, q, k: s * h.item(), r"\.item\(\)", "the value itself"),
    "float": (lambda s, b, h, q, k: s * float(h), r"float\(\)", r"x\.to\(torch\.float32\)"),
    "list": (lambda s, b, h, q, k: s * [1.0, 2.0, 3.0, 4.0][h], "an index of a Python list", "a tensor in place"),
    "range": (lambda s, b, h, q, k: s + sum(range(h)), "an index of a Python list, a range", "a tensor"),
    "math": (lambda s, b, h, q, k: math.exp(s), r"float\(\)", r"x\.to"),
    "unknown": (lambda s, b, h, q, k: torch.lgamma(s), r"torch\.lgamma", "pointwise function"),
    "unknown_method": (lambda s, b, h, q, k: s.digamma(), r"\.digamma", "pointwise"),
    "sum": (lambda s, b, h, q, k: torch.sum(s), r"torch\.sum of a single value", "single values"),
    "any": (lambda s, b, h, q, k: (s > 0).any(), r"\.any", "the value itself"),
    "long_vector": (lambda s, b, h, q, k: s + (torch.arange(999) <= q).sum(), "a vector of 999 elements", "at most 256"),
    "lengths": (lambda s, b, h, q, k: (torch.arange(4) * h + torch.arange(3) * h).sum(), "vectors of 3 and 4", "one length"),
    "stack": (lambda s, b, h, q, k: torch.stack([s, s]), r"torch\.stack", "single values"),
    "inplace": (lambda s, b, h, q, k: s.add_(1), r"\.add_", "gives a new value: add"),
    "detach": (lambda s, b, h, q, k: s.detach(), "detach", "detached outside"),
    "cast": (lambda s, b, h, q, k: s + h.to(torch.int8), "a cast to torch.int8", "torch.int32"),
    "float_index": (lambda s, b, h, q, k: s + torch.zeros(9)[s], "a torch.float32 as an index", r"x\.to\(torch\.int32\)"),
    "row": (lambda s, b, h, q, k: s + torch.zeros(4, 9)[h], r"a result of shape \[9\]", "one value"),
    "whole_tensor": (lambda s, b, h, q, k: s + torch.zeros(9), r"a result of shape \[9\]", "one value"),
    "matrix": (lambda s, b, h, q, k: s + torch.zeros(9, 9), r"a captured tensor of shape \[9, 9\] as a number", "an index for each"),
    "slice": (lambda s, b, h, q, k: s + torch.zeros(9, 4)[1:, h][q], "a slice beside a traced index", "outside"),
    "new_dimension": (lambda s, b, h, q, k: s + torch.zeros(9)[h, None], "None as an index", "indices only"),
    "too_many": (lambda s, b, h, q, k: s + torch.zeros(9)[h, q], "2 indices of a captured tensor with 1", "at most 1"),
    "integer_power": (lambda s, b, h, q, k: s + 3 ** h, "an integer to an integer power", "a float base"),
    "write": (lambda s, b, h, q, k: write(s, h), "a write into a tensor", "torch.where"),
    "write_real": (lambda s, b, h, q, k: s + torch.zeros(3).add_(1)[0], r"a write into a tensor \(add_\)", "a new tensor"),
    "complex": (lambda s, b, h, q, k: s + torch.zeros(3, dtype=torch.complex64)[h], "a complex tensor", "its real"),
    "vmap": (lambda s, b, h, q, k: s * torch.vmap(lambda x: x * q)(torch.arange(3)).sum(), r"torch\.vmap inside", "vectors"),
    "bessel": (lambda s, b, h, q, k: torch.special.bessel_j0(s), r"torch\.special_bessel_j0", "one of torch's pointwise"),
    "numpy": (lambda s, b, h, q, k: numpy.tanh(s), "a function of NumPy's", r"torch\.tanh for numpy\.tanh"),
    "iteration": (lambda s, b, h, q, k: sum(x for x in s), "iteration", "a loop over a Python range"),
}
# fmt: on


def write(s, h):
    torch.zeros(4)[h] = s
    return s


@pytest.mark.parametrize("name", BRANCHES)
def test_what_cannot_be_traced(name):
    """The error names the operation and this file's line, and says what would work."""
    function, operation, instead = BRANCHES[name]
    with pytest.raises(TraceError, match=operation) as error:
        run(function)
    text = str(error.value)
    line = write.__code__.co_firstlineno + 1 if name == "write" else function.__code__.co_firstlineno
    assert f"test_tracer.py:{line}" in text, text
    head, _, advice = text.partition("instead: ")
    assert re.search(instead, advice), text


def test_not_a_bool_and_not_a_number():
    assert run(lambda s, b, h, q, k: 1.5).shape == (2, 4, 12, 8)
    assert run(lambda s, b, h, q, k: s > 0).shape == (2, 4, 12, 8)
    assert run(None, lambda b, h, q, k: True).shape == (2, 4, 12, 8)
    with pytest.raises(TraceError, match="NoneType"):
        run(lambda s, b, h, q, k: None)


def test_real_tensors_are_computed_outside_the_formula():
    """What depends on no position runs as ordinary torch, gradients included."""
    gate = torch.randn(4, requires_grad=True)
    q = torch.randn(2, 4, 12, 8)
    o = flex_attention(q, q, q, lambda s, b, h, i, j: s * torch.sigmoid(gate * 2)[h])
    (grad,) = torch.autograd.grad(o.square().sum(), gate)
    assert grad.abs().sum() > 0


def test_gradients_of_unrolled_vectors():
    """A row of a table, and a whole tensor of rank 1: the same as their elements one by one."""
    q = torch.randn(2, 4, 12, 8)
    a, z, w = (torch.randn(shape, requires_grad=True) for shape in ((4, 12, 3), (12, 3), (3,)))
    rows = lambda s, b, h, i, j: s + torch.dot(a[h, i], z[j]) + (w * i).amax() + (a[h, j] * w).sum()
    apart = lambda s, b, h, i, j: (
        s
        + sum(a[h, i, n] * z[j, n] for n in range(3))
        + torch.maximum(torch.maximum(w[0] * i, w[1] * i), w[2] * i)
        + sum(a[h, j, n] * w[n] for n in range(3))
    )
    one, two = flex_attention(q, q, q, rows), flex_attention(q, q, q, apart)
    torch.testing.assert_close(one, two)
    for x, y in zip(
        torch.autograd.grad(one.square().sum(), (a, z, w)), torch.autograd.grad(two.square().sum(), (a, z, w))
    ):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("chosen", [1, 3])
def test_rows_of_one_element(chosen):
    """Blocks of keys that a router chose for a block of queries, one of them or several; and one weight for a longer row."""
    q = torch.randn(2, 4, 32, 8)
    blocks, weight, terms = torch.randint(4, (2, 4, 4, chosen)), torch.rand(4, 1), torch.rand(4, 3)
    mask = lambda b, h, i, j: (blocks[b, h, i // 8] == (j // 8).unsqueeze(-1)).any(dim=-1)
    mod = lambda s, b, h, i, j: s * (weight[h] * terms[h]).sum()
    o = flex_attention(q, q, q, mod, create_block_mask(mask, 2, 4, 32, 32))
    i = torch.arange(32)
    kept = (blocks[:, :, i // 8, None] == (i // 8)[:, None]).any(-1)
    factor = (weight * terms).sum(-1)[:, None, None]
    torch.testing.assert_close(o, F.scaled_dot_product_attention(q * factor, q, q, kept))


def test_types_of_captured_tensors():
    """Every integer and float type, and a number on another device than the query's."""
    q = torch.randn(1, 4, 6, 8)
    for dtype in (
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.bool,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ):
        table = torch.tensor([0, 1, 1, 0]).to(dtype)
        o = flex_attention(q, q, q, lambda s, b, h, i, j: s * (1 + table[h]))
        ref = flex_attention(q, q, q, lambda s, b, h, i, j: s * torch.where((h == 1) | (h == 2), 2.0, 1.0))
        torch.testing.assert_close(o, ref)


def test_partials_with_keywords_and_numpy_numbers():
    import numpy

    q = torch.randn(1, 4, 6, 8)
    f = lambda s, b, h, i, j, *, scale, shift=0.0: s * scale + shift
    one = flex_attention(q, q, q, functools.partial(f, scale=numpy.float32(2.0), shift=numpy.int64(1)))
    torch.testing.assert_close(one, flex_attention(q, q, q, "score * 2 + 1"))


def test_tables_of_every_type_are_bound_as_they_are():
    """Beside tensors on any device: engines read int64, uint8 and bool in place."""
    device = torch.device("meta")
    like = torch.empty(1, 4, 8, 8, device=device)
    made = lambda dtype, *shape: torch.empty(*shape, dtype=dtype, device=device)
    doc, pad, level = made(torch.int64, 8), made(torch.bool, 1, 8), made(torch.uint8, 8)
    mask = lambda b, h, q, k: (doc[q] == doc[k]) & ~pad[b, k] & (level[q] < 3)
    found = traced(mask_mod=mask, like=like)
    assert [x is y for x, y in zip(found.tensors, (doc, pad, level))] == [True] * 3
    assert re.search(r"let (_t\d+) = _c1\[b, k\]; let _t\d+ = !\1;", found.mask)
    named = traced("score + a[q]", tensors={"a": made(torch.int64, 8), "c": made(torch.bool, 8)}, like=like)
    assert [x.dtype for x in named.tensors] == [torch.int64, torch.bool]

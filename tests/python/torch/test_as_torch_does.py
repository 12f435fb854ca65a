"""What PyTorch's own tests of flex_attention ask for beside numbers: types, strides, warnings, messages. And what could be
taken for something else without a word: it is right, or it is refused."""

import warnings

import dense
import numpy
import pytest
import torch

import fovea
from fovea.torch import AuxRequest, attention, create_block_mask, flex, flex_attention


S = 24


@pytest.fixture
def tensors():
    return [torch.randn(2, 4, S, 8) for _ in range(3)]


def compiled(function):
    return torch.compile(function, fullgraph=True, backend="aot_eager")


NEGATIONS = {
    "operator": lambda b, h, q, k: ~(q < k),
    "logical_not": lambda b, h, q, k: torch.logical_not(q < k),
    "bitwise_not": lambda b, h, q, k: torch.bitwise_not(q < k),
    "method": lambda b, h, q, k: (q < k).logical_not(),
    "of_an_int": lambda b, h, q, k: ~(k - q) >= -1,
}


@pytest.mark.parametrize("name", NEGATIONS)
def test_negations_compile_in_one_graph(tensors, name):
    call = lambda q, k, v: flex_attention(q, k, v, block_mask=create_block_mask(NEGATIONS[name], None, None, S, S))
    ref, _ = dense.attention(*(x.double() for x in tensors), None, lambda b, h, q, k: q >= k)
    for run in (call, compiled(call)):
        dense.assert_close("o", run(*tensors), ref, torch.float32)


class Straight(torch.autograd.Function):
    """Rounds, with the derivative of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


def without_gradients(score, b, h, q, k):
    with torch.no_grad():
        return score * 2


def straight(score, b, h, q, k):
    return Straight.apply(score)


@pytest.mark.parametrize("score_mod", [straight, without_gradients])
def test_a_derivative_of_ones_own_is_refused(tensors, score_mod):
    call = lambda q, k, v: flex_attention(q, k, v, score_mod)
    for run in (call, lambda q, k, v: attention(q, k, v, score_mod=score_mod)):
        with pytest.raises(fovea.TraceError, match="torch.autograd.Function or torch.no_grad"):
            run(*tensors)
    with pytest.raises(Exception, match="torch.autograd.Function or torch.no_grad"):
        compiled(call)(*tensors)
    with torch.no_grad():  # nothing is differentiated
        assert call(*tensors).shape == tensors[0].shape


@torch.no_grad()
def causal_without_gradients(b, h, q, k):
    return q >= k


def test_a_mask_has_no_derivative_to_lose(tensors):
    call = lambda q, k, v: attention(q, k, v, score_mod=lambda s, b, h, i, j: s * 2, mask_mod=causal_without_gradients)
    want = attention(*tensors, score_mod=lambda s, b, h, i, j: s * 2, is_causal=True)
    for run in (call, compiled(call)):
        assert torch.equal(run(*tensors), want)


MASKS_OF_NUMBERS = {
    "float": lambda b, h, q, k: (q - k) * 0.5,
    "int": lambda b, h, q, k: q - k + 1,
    "number": lambda b, h, q, k: 1,
    "select": lambda b, h, q, k: torch.where(q >= k, 1.0, 0.0),
}


@pytest.mark.parametrize("name", MASKS_OF_NUMBERS)
def test_a_mask_that_is_no_bool_is_refused(tensors, name):
    mask = MASKS_OF_NUMBERS[name]
    with pytest.raises(fovea.TraceError, match="a mask of type torch"):
        create_block_mask(mask, None, None, S, S)
    with pytest.raises(fovea.TraceError, match="a mask of type torch"):
        attention(*tensors, mask_mod=mask)


def test_a_scale_of_zero_means_the_same_everywhere(tensors):
    """All kept scores are equal."""
    arrays = [x.numpy() for x in tensors]
    mean = arrays[2].mean(2, keepdims=True) + numpy.zeros_like(arrays[0])
    results = [fovea.attention(*arrays, scale=0), attention(*tensors, scale=0), flex_attention(*tensors, scale=0.0)]
    results.append(compiled(lambda *given: attention(*given, scale=0.0))(*tensors))
    results.append(attention(*tensors, scale=0, score_mod="score * t", scalars={"t": 2.0}))
    for o in results:
        numpy.testing.assert_allclose(numpy.asarray(o), mean, rtol=1e-5, atol=1e-6)


def test_a_scale_of_zero_has_gradients(tensors):
    q, k, v = (x.requires_grad_() for x in tensors)
    dq, dk, dv = torch.autograd.grad(attention(q, k, v, scale=0.0).sum(), (q, k, v))
    assert not dq.any() and not dk.any()
    torch.testing.assert_close(dv, torch.ones_like(dv))


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("way", ["flex", "attention", "with_lse", "dispatched"])
def test_a_second_derivative_is_never_none(tensors, times, way):
    """Also if the caller says that inputs may be unused; also of a call that was made before."""
    q, k, v = (x.requires_grad_() for x in tensors)
    for _ in range(times):
        if way == "flex":
            o = flex_attention(q, k, v)
        elif way == "attention":
            o = attention(q, k, v, sinks=torch.zeros(4, requires_grad=True))
        elif way == "with_lse":
            o = sum(x.square().sum() for x in flex_attention(q, k, v, return_lse=True))
        else:
            with torch.utils.flop_counter.FlopCounterMode(display=False):
                o = flex_attention(q, k, v)
        (g,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    wide = dense.doubled((q, k, v))
    o, lse = dense.attention(*wide, sink=torch.zeros(4).double() if way == "attention" else None)
    loss = (o.square().sum() + lse.square().sum()) if way == "with_lse" else o
    (expected,) = torch.autograd.grad(loss.square().sum(), wide[0], create_graph=True)
    for x, y in zip((q, k, v), wide):
        (got,) = torch.autograd.grad(g.sum(), x, allow_unused=True, retain_graph=True)
        (wanted,) = torch.autograd.grad(expected.sum(), y, retain_graph=True)
        dense.assert_close(way, got, wanted, torch.float32, slack=20)


@pytest.mark.parametrize("last", [8, 6])
def test_the_last_stride_of_the_output_is_one(tensors, last):
    """Also if the query's is not; the other dimensions keep its order."""
    q, k, v = tensors
    for axes in ((0, 1, 3, 2), (3, 0, 2, 1), (0, 2, 1, 3)):
        back = [axes.index(i) for i in range(4)]
        odd = q.permute(axes).contiguous().permute(back)
        for _ in range(2):  # the second call is found
            o = flex_attention(odd, k, v[..., :last])
            assert o.stride(-1) == 1 and o.shape == (2, 4, S, last)
        assert compiled(lambda *given: flex_attention(*given))(odd, k, v[..., :last]).stride() == o.stride()
        dense.assert_right(o, (q, k, v[..., :last]))
    assert flex_attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v).transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2])
def test_keys_and_values_of_another_type(tensors, dtype):
    q, k, v = tensors
    for key, value in ((k.to(dtype), v.to(dtype)), (k, v.to(dtype)), (k.to(dtype), v)):
        o = flex_attention(q, key, value)
        assert o.dtype == q.dtype
        assert torch.equal(o, flex_attention(q, key.float(), value.float()))
    with pytest.raises(ValueError, match="must be of a floating type"):
        flex_attention(q, k.int(), v)


def test_gradients_of_keys_of_another_type(tensors):
    q, k, v = tensors
    k = k.half().requires_grad_()
    (got,) = torch.autograd.grad(flex_attention(q, k, v).square().sum(), k)
    (wanted,) = torch.autograd.grad(flex_attention(q, k.float(), v).square().sum(), k)
    assert got.dtype == torch.float16 and torch.equal(got, wanted)


def test_kernel_options(tensors):
    flex._warned.clear()
    for name in ("BACKEND", "fwd_BLOCK_M", "num_warps"):
        flex_attention(*tensors, kernel_options={name: "AUTO"})
    with pytest.warns(UserWarning, match="'NEW' is not known here"):
        flex_attention(*tensors, kernel_options={"NEW": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flex_attention(*tensors, kernel_options={"NEW": 2})
    with pytest.raises(ValueError, match="Invalid BACKEND value 'INVALID'"):
        flex_attention(*tensors, kernel_options={"BACKEND": "INVALID"})


def test_return_lse_is_deprecated(tensors):
    flex._warned.clear()
    with pytest.warns(FutureWarning, match="return_lse is deprecated"):
        flex_attention(*tensors, return_lse=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flex_attention(*tensors, return_lse=True)
        flex_attention(*tensors, return_aux=AuxRequest(lse=True))
    with pytest.raises(ValueError, match="Cannot specify both return_lse and return_aux"):
        flex_attention(*tensors, return_lse=True, return_aux=AuxRequest(lse=True))


def test_tensors_on_two_devices(tensors):
    q, k, v = tensors
    with pytest.raises(ValueError, match="Expected query, key, and value to have the same device type"):
        flex_attention(q, k.to("meta"), v)
    mask = torch.nn.attention.flex_attention.create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device="cpu")
    mask.kv_num_blocks = mask.kv_num_blocks.to("meta")
    with pytest.raises(ValueError, match="Expect q/k/v and block_mask to be on the same device"):
        flex_attention(q, k, v, block_mask=mask)


COMPARISONS = {
    "less": lambda n: lambda b, h, i, j: i - j < n,
    "equal": lambda n: lambda b, h, i, j: (j == n) | (i == j),
    "mirrored": lambda n: lambda b, h, i, j: n >= (i - j),
    "unequal": lambda n: lambda b, h, i, j: (j != n) | (i == j),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_an_int_that_changes_under_compile(tensors, name):
    """Dynamo holds it as a symbol the second time; a comparison of it with a position was False, or a crash."""
    call = lambda q, k, v, n: flex_attention(q, k, v, block_mask=create_block_mask(COMPARISONS[name](n), None, None, S, S))
    torch._dynamo.reset()
    run = compiled(call)
    for n in (3, 7, 9, 3):
        assert torch.equal(run(*tensors, n), call(*tensors, n))

"""What PyTorch's own tests of flex_attention ask for beside numbers: types, strides, warnings, messages."""

import warnings

import dense
import pytest
import torch

import fovea
from fovea.torch import AuxRequest, create_block_mask, flex
from fovea.torch import flex_attention as attend

S = 24


@pytest.fixture
def tensors():
    return [torch.randn(2, 4, S, 8) for _ in range(3)]


@pytest.mark.parametrize("last", [8, 6])
def test_the_last_stride_of_the_output_is_one(tensors, last):
    """Also if the query's is not; the other dimensions keep its order."""
    q, k, v = tensors
    for axes in ((0, 1, 3, 2), (3, 0, 2, 1), (0, 2, 1, 3)):
        back = [axes.index(i) for i in range(4)]
        odd = q.permute(axes).contiguous().permute(back)
        for _ in range(2):  # the second call is found
            o = attend(odd, k, v[..., :last])
            assert o.stride(-1) == 1 and o.shape == (2, 4, S, last)
        compiled = torch.compile(lambda *given: attend(*given), fullgraph=True, backend="aot_eager")
        assert compiled(odd, k, v[..., :last]).stride() == o.stride()
        ref, _ = dense.attention(*(x.double() for x in (q, k, v[..., :last])))
        dense.assert_close("o", o, ref, torch.float32)
    assert attend(q.transpose(1, 2).contiguous().transpose(1, 2), k, v).transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2])
def test_keys_and_values_of_another_type(tensors, dtype):
    q, k, v = tensors
    for key, value in ((k.to(dtype), v.to(dtype)), (k, v.to(dtype)), (k.to(dtype), v)):
        o = attend(q, key, value)
        assert o.dtype == q.dtype
        assert torch.equal(o, attend(q, key.float(), value.float()))
    with pytest.raises(ValueError, match="must be of a floating type"):
        attend(q, k.int(), v)


def test_gradients_of_keys_of_another_type(tensors):
    q, k, v = tensors
    k = k.half().requires_grad_()
    (got,) = torch.autograd.grad(attend(q, k, v).square().sum(), k)
    (wanted,) = torch.autograd.grad(attend(q, k.float(), v).square().sum(), k)
    assert got.dtype == torch.float16 and torch.equal(got, wanted)


def test_kernel_options(tensors):
    flex._warned.clear()
    for name in ("BACKEND", "fwd_BLOCK_M", "num_warps"):
        attend(*tensors, kernel_options={name: "AUTO"})
    with pytest.warns(UserWarning, match="'NEW' is not known here"):
        attend(*tensors, kernel_options={"NEW": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(*tensors, kernel_options={"NEW": 2})
    with pytest.raises(ValueError, match="Invalid BACKEND value 'INVALID'"):
        attend(*tensors, kernel_options={"BACKEND": "INVALID"})


def test_return_lse_is_deprecated(tensors):
    flex._warned.clear()
    with pytest.warns(FutureWarning, match="return_lse is deprecated"):
        attend(*tensors, return_lse=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(*tensors, return_lse=True)
        attend(*tensors, return_aux=AuxRequest(lse=True))
    with pytest.raises(ValueError, match="Cannot specify both return_lse and return_aux"):
        attend(*tensors, return_lse=True, return_aux=AuxRequest(lse=True))


def test_tensors_on_two_devices(tensors):
    q, k, v = tensors
    with pytest.raises(ValueError, match="Expected query, key, and value to have the same device type"):
        attend(q, k.to("meta"), v)
    mask = torch.nn.attention.flex_attention.create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device="cpu")
    mask.kv_num_blocks = mask.kv_num_blocks.to("meta")
    with pytest.raises(ValueError, match="Expect q/k/v and block_mask to be on the same device"):
        attend(q, k, v, block_mask=mask)


COMPARISONS = {
    "less": lambda n: lambda b, h, i, j: i - j < n,
    "equal": lambda n: lambda b, h, i, j: (j == n) | (i == j),
    "mirrored": lambda n: lambda b, h, i, j: n >= (i - j),
    "unequal": lambda n: lambda b, h, i, j: (j != n) | (i == j),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_an_int_that_changes_under_compile(tensors, name):
    """Dynamo holds it as a symbol the second time; a comparison of it with a position was False, or a crash."""
    call = lambda q, k, v, n: attend(q, k, v, block_mask=create_block_mask(COMPARISONS[name](n), None, None, S, S))
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for n in (3, 7, 9, 3):
        assert torch.equal(compiled(*tensors, n), call(*tensors, n))


def test_errors_are_torchs_kinds():
    assert issubclass(fovea.InvalidArgument, ValueError) and issubclass(fovea.Unsupported, NotImplementedError)

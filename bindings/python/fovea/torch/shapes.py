"""Sizes and strides: from the tensors of a layout to what the library counts by, and from the query to its output."""

import torch
from torch.fx.experimental.symbolic_shapes import guard_scalar

from .. import _request
from .._core import InvalidArgument, Unsupported
from .._request import AXES, by_axes
from .call import DEFAULT_SCALE

NAMES = ("query", "key", "value")


class IsDTensor(Unsupported):
    """For eager calls, which take such tensors to sharded.py."""


def sizes_of(call, q, k, v) -> _request.Sizes:
    packed = None if call.layout != "thd" else (call.q_starts.shape[0] - 1, call.max_q, call.max_k)
    return _request.sizes_of(call.layout, [x.shape for x in (q, k, v)], packed, NAMES)


def check_tensors(q, k, v):
    for name, x in zip(NAMES, (q, k, v)):
        if not isinstance(x, torch.Tensor):
            raise InvalidArgument(f"{name}: must be a torch.Tensor, got {type(x).__name__}")
        if type(x).__name__ == "DTensor":
            raise IsDTensor(
                f"{name}: a DTensor {x.placements} is not taken here; fovea.torch.attention and flex_attention take one in "
                "eager mode, and context_parallel x.to_local()"
            )
        if x.layout != torch.strided:
            raise InvalidArgument(f"{name}: {x.layout} must be torch.strided; to_dense() makes it so")


def check_ranks(layout, q, k, v):
    for name, x in zip(NAMES, (q, k, v)):
        _request.check_rank(name, layout, x.shape)
        check_device(name, x, q)
    _request.check_types((q.dtype, k.dtype, v.dtype), NAMES)


def check_device(name, x, q):
    if x.device != q.device:
        raise InvalidArgument(f"{name}: on {x.device}, but the query is on {q.device}; move one of them")


def strides_of(x, layout):
    return by_axes(x.stride(), layout, 0)


def strides_word(x, layout):
    """Strides for a problem line; None where they are what the line means without."""
    strides, extents = strides_of(x, layout), by_axes(x.shape, layout, 1)
    dense, step = [0] * 4, 1
    for axis in (3, 1, 2, 0) if layout == "thd" else (3, 2, 1, 0):
        dense[axis] = step
        step *= extents[axis]
    return None if layout != "thd" and strides == tuple(dense) else strides


def dense_like(q, last=None):
    """An empty tensor with q's shape and order of dimensions in memory. With `last` it is an output with that last extent,
    whose last stride is 1 whatever q's is: what flex_attention and SDPA return, so that transposing back costs nothing."""
    if last is None or is_like_its_output(q, last):
        return torch.empty_like(q)
    shape = (*q.shape[:-1], last)
    order = sorted(range(len(shape) - 1), key=lambda i: (q.stride(i), -i), reverse=True)
    return torch.empty_permuted(shape, (*order, len(shape) - 1), dtype=q.dtype, device=q.device)


def is_like_its_output(q, last) -> bool:
    return last == q.shape[-1] and q.stride(-1) == 1


def rows_shape(layout, q):
    """Of lse and row maxima."""
    if layout == "thd":
        return (q.shape[1], q.shape[0])
    b, h, s, _ = by_axes(q.shape, layout, 0)
    return (b, h, s)


def heads_of(layout, q):
    return q.shape[AXES[layout][1]]


def rows_dtype(q):
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def part_dtype(call, q):
    """Of o and of the gradients of q, k and v."""
    return rows_dtype(q) if call.parts else q.dtype


def scale_of(scale) -> float:
    """The scale as a call has it."""
    if scale is None:
        return DEFAULT_SCALE
    if torch.compiler.is_compiling() and not isinstance(scale, str):  # one that Dynamo holds as a symbol has its value
        scale = guard_scalar(scale)
    return _request.scale_of(scale)

"""Sizes, strides and signatures of tensors: what the library is told of them, how outputs lie, and by what a call is known
again."""

import torch

from .. import _core, _request
from .._request import AXES, by_axes

NAMES = ("query", "key", "value")


def sizes_of(call, q, k, v) -> _request.Sizes:
    packed = None if call.layout != "thd" else (call.q_starts.shape[0] - 1, call.max_q, call.max_k)
    return _request.sizes_of(call.layout, [x.shape for x in (q, k, v)], packed, NAMES)


def strides_of(x, layout):
    return by_axes(x.stride(), layout, 0)


def strides_word(x, layout):
    """Strides for a problem line; None if they are the default of the line."""
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
    """The shape of lse and of row maxima."""
    if layout == "thd":
        return (q.shape[1], q.shape[0])
    b, h, s, _ = by_axes(q.shape, layout, 0)
    return (b, h, s)


def heads_of(layout, q):
    return q.shape[AXES[layout][1]]


def rows_dtype(q):
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def part_dtype(call, q):
    """The type of o and of the gradients of q, k and v."""
    return rows_dtype(q) if call.parts else q.dtype


PLAIN = (torch.Tensor, torch.nn.Parameter)


class AskingViewer:
    """In place of fovea._core.Viewer for versions of torch without DLPack's table."""

    @staticmethod
    def signature(tensors, with_gradients):
        out = []
        for x in tensors:
            if type(x) not in PLAIN or x.layout != torch.strided or x.is_neg():
                return None
            out += (x.shape, x.stride(), x.dtype, x.device, with_gradients and x.requires_grad)
            out.append(next(i for i, other in enumerate(tensors) if other is x))
        return tuple(out)


def best_viewer():
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        return AskingViewer
    try:
        return _core.Viewer(table, PLAIN, torch.Tensor.is_neg)
    except _core.InvalidArgument:  # a later major version of DLPack
        return AskingViewer


VIEWER = best_viewer()


def resolved(x):
    """The tensor with its values in memory: x.conj().imag shares the memory of x, which has the other sign."""
    return x.resolve_neg() if x is not None and x.is_neg() else x

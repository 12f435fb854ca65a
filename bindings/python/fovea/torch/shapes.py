"""Sizes and strides: from the tensors of a layout to what the library counts by, and from the query to its output."""

import math

import torch

from .._core import InvalidArgument

# Where batch, head, position and feature stand in a tensor of each layout.
AXES = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3), "thd": (None, 1, 0, 2)}
RANK = {"bhsd": 4, "bshd": 4, "sbhd": 4, "thd": 3}


def by_axes(numbers, layout, absent):
    return tuple(absent if axis is None else numbers[axis] for axis in AXES[layout])


def sizes_of(call, q, k, v):
    """(b, h, hkv, sq, skv, d, dv, t_q, t_k), as the library wants them; checks what torch's tensors can get wrong."""
    check_ranks(call.layout, q, k, v)
    b, h, sq, d = by_axes(q.shape, call.layout, 0)
    bk, hkv, skv, dk = by_axes(k.shape, call.layout, 0)
    bv, hv, sv, dv = by_axes(v.shape, call.layout, 0)
    if dk != d:
        raise InvalidArgument(f"key: its last extent {dk} must be the query's, {d}")
    if (bk, hkv, skv) != (bv, hv, sv):
        raise InvalidArgument(f"value: shape {list(v.shape)} does not go with the key's, {list(k.shape)}")
    if call.layout != "thd" and bk != b:
        raise InvalidArgument(f"key: {bk} sequences, the query has {b}")
    if h % max(hkv, 1) != 0 or (hkv == 0 and h > 0):
        raise InvalidArgument(f"key: {hkv} heads do not divide the query's {h}")
    if call.layout != "thd":
        return (b, h, hkv, sq, skv, d, dv, 0, 0)
    return (call.q_starts.shape[0] - 1, h, hkv, call.max_q, call.max_k, d, dv, sq, skv)


def check_tensors(q, k, v):
    for name, x in (("query", q), ("key", k), ("value", v)):
        if not isinstance(x, torch.Tensor):
            raise InvalidArgument(f"{name}: must be a torch.Tensor, got {type(x).__name__}")
        if x.layout != torch.strided:
            raise InvalidArgument(f"{name}: {x.layout} must be torch.strided; to_dense() makes it so")


def check_ranks(layout, q, k, v):
    if layout not in AXES:
        raise InvalidArgument(f"layout={layout!r}: must be one of {', '.join(AXES)}")
    for name, x in (("query", q), ("key", k), ("value", v)):
        if x.dim() != RANK[layout]:
            raise InvalidArgument(
                f"{name}: {x.dim()} dimensions {list(x.shape)}; layout {layout} has {RANK[layout]}"
            )
        if x.dtype != q.dtype:
            raise InvalidArgument(f"{name}: {x.dtype}, but the query is {q.dtype}; convert one of them")
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
    """An empty tensor with q's shape and order of dimensions in memory, its last extent `last` where given: what
    flex_attention and SDPA return, so that transposing back costs nothing."""
    if last is None or last == q.shape[-1]:
        return torch.empty_like(q)
    shape = (*q.shape[:-1], last)
    order = sorted(range(len(shape)), key=lambda i: (q.stride(i), -i), reverse=True)
    return torch.empty_permuted(shape, order, dtype=q.dtype, device=q.device)


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


def scale_of(scale) -> float:
    """The scale as a call has it: 0 for 1 / sqrt(d)."""
    if scale is None:
        return 0.0
    if isinstance(scale, torch.Tensor) and scale.requires_grad:
        raise InvalidArgument("scale: gets no gradient; a learned one is a modifier: score * temperature")
    try:
        number = float(scale)
    except (TypeError, ValueError):
        raise InvalidArgument(f"scale={scale!r}: must be a number") from None
    if not (math.isfinite(number) and number != 0):
        raise InvalidArgument(f"scale={scale}: must be a finite number other than 0")
    return number

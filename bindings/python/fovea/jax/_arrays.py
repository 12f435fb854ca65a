"""Arrays whose elements are Terms: what indexing, slicing and reshaping become in a formula.

A formula has only scalars, but Python modifiers often handle small arrays: `table[h]` is a row before `[q]` makes it a
number. A SymbolicArray is a shape with a function from indices to a Term; views are functions of functions, and only the
element that is finally used is written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from ._terms import TRUE, Term, Writer, literal

Indices = tuple[Term, ...]


@dataclasses.dataclass(frozen=True)
class SymbolicArray:
    shape: tuple[int, ...]
    kind: str
    at: Callable[[Indices], Term]
    # True: an index out of range reads the nearest element, as loads of captured tensors do
    holds_indices: bool = False

    @property
    def scalar(self) -> Term:
        return self.at(())


def scalar(term: Term) -> SymbolicArray:
    return SymbolicArray((), term.kind, lambda _: term)


def number(value: int) -> Term:
    return literal(value, "i32")


def elementwise(shape: Sequence[int], kind: str, arrays: Sequence[SymbolicArray], function) -> SymbolicArray:
    """function(*Terms) -> Term for each element; scalars among `arrays` are broadcast."""

    def at(indices: Indices) -> Term:
        return function(*(a.at(indices if a.shape else ()) for a in arrays))

    return SymbolicArray(tuple(shape), kind, at, all(a.holds_indices or not a.shape for a in arrays))


def broadcast(array: SymbolicArray, shape: Sequence[int], dimensions: Sequence[int]) -> SymbolicArray:
    def at(indices: Indices) -> Term:
        return array.at(tuple(number(0) if array.shape[i] == 1 else indices[d] for i, d in enumerate(dimensions)))

    return SymbolicArray(tuple(shape), array.kind, at)


def squeeze(array: SymbolicArray, dimensions: Sequence[int]) -> SymbolicArray:
    gone = {d % len(array.shape) for d in dimensions}
    kept = [d for d in range(len(array.shape)) if d not in gone]

    def at(indices: Indices) -> Term:
        given = dict(zip(kept, indices))
        return array.at(tuple(given.get(d, number(0)) for d in range(len(array.shape))))

    return SymbolicArray(tuple(array.shape[d] for d in kept), array.kind, at, array.holds_indices)


def transpose(array: SymbolicArray, permutation: Sequence[int]) -> SymbolicArray:
    def at(indices: Indices) -> Term:
        given = dict(zip(permutation, indices))
        return array.at(tuple(given[d] for d in range(len(permutation))))

    return SymbolicArray(tuple(array.shape[d] for d in permutation), array.kind, at, array.holds_indices)


def reshape(writer: Writer, array: SymbolicArray, shape: Sequence[int]) -> SymbolicArray:
    shape = tuple(shape)
    ones = [d for d, n in enumerate(array.shape) if n == 1]
    if tuple(n for n in array.shape if n != 1) == tuple(n for n in shape if n != 1):
        dense = squeeze(array, ones) if ones else array
        return broadcast(dense, shape, [d for d, n in enumerate(shape) if n != 1])

    def at(indices: Indices) -> Term:
        flat = number(0)
        for i, n in zip(indices, shape):
            flat = writer.add(writer.mul(flat, number(n)), i)
        parts, stride = [], math.prod(array.shape)
        for n in array.shape:
            stride //= n
            parts.append(writer.modulo(writer.floor_divide(flat, number(stride)), number(n)))
        return array.at(tuple(parts))

    return SymbolicArray(shape, array.kind, at)


def strided_slice(writer: Writer, array: SymbolicArray, start, limit, strides) -> SymbolicArray:
    strides = strides or (1,) * len(start)
    shape = tuple(-(-(stop - first) // step) for first, stop, step in zip(start, limit, strides))

    def at(indices: Indices) -> Term:
        return array.at(
            tuple(writer.add(writer.mul(i, number(step)), number(first)) for i, first, step in zip(indices, start, strides))
        )

    return SymbolicArray(shape, array.kind, at)


def reverse(writer: Writer, array: SymbolicArray, dimensions: Sequence[int]) -> SymbolicArray:
    def at(indices: Indices) -> Term:
        return array.at(
            tuple(
                writer.add(number(array.shape[d] - 1), writer.mul(i, number(-1))) if d in dimensions else i
                for d, i in enumerate(indices)
            )
        )

    return SymbolicArray(array.shape, array.kind, at)


def concatenate(writer: Writer, arrays: Sequence[SymbolicArray], dimension: int) -> SymbolicArray:
    total = sum(a.shape[dimension] for a in arrays)
    shape = list(arrays[0].shape)
    shape[dimension] = total

    def at(indices: Indices) -> Term:
        first, result = total, None
        for array in reversed(arrays):
            first -= array.shape[dimension]
            inner = writer.add(indices[dimension], number(-first))
            if indices[dimension].value is not None and not 0 <= inner.value < array.shape[dimension]:
                continue
            here = array.at(indices[:dimension] + (inner,) + indices[dimension + 1 :])
            if result is None:
                result = here
            else:
                before = writer.compare("<", indices[dimension], number(first + array.shape[dimension]))
                result = writer.select(before, here, result)
        return result

    return SymbolicArray(tuple(shape), arrays[0].kind, at)


def dynamic_slice(writer: Writer, array: SymbolicArray, starts: Sequence[Term], sizes) -> SymbolicArray:
    """lax.dynamic_slice: starts are moved so that the slice lies inside."""

    def start(d: int) -> Term:
        n, size = array.shape[d], sizes[d]
        # Also if n is 1, so that a batch of one gives the same formula as any other.
        if size == 1 and array.holds_indices:
            return starts[d]
        if size == n:
            return number(0)
        return writer.clamp(starts[d], 0, n - size)

    def at(indices: Indices) -> Term:
        return array.at(tuple(writer.add(start(d), i) for d, i in enumerate(indices)))

    whole = all(size in (1, n) for size, n in zip(sizes, array.shape))
    return SymbolicArray(tuple(sizes), array.kind, at, array.holds_indices and whole)


def gather(writer: Writer, array: SymbolicArray, indices: SymbolicArray, shape, numbers) -> SymbolicArray:
    """lax.gather; `numbers` is (GatherDimensionNumbers, slice_sizes, mode, fill): mode is clip, fill or promise."""
    dims, sizes, mode, fill = numbers
    inner = [
        d for d in range(len(array.shape)) if d not in dims.collapsed_slice_dims and d not in dims.operand_batching_dims
    ]

    def at(out: Indices) -> Term:
        batch = tuple(i for d, i in enumerate(out) if d not in dims.offset_dims)
        offsets = dict(zip(inner, (out[d] for d in dims.offset_dims)))
        where: list[Term] = [offsets.get(d, number(0)) for d in range(len(array.shape))]
        inside = TRUE
        for component, d in enumerate(dims.start_index_map):
            start = indices.at(batch + (number(component),))
            last = array.shape[d] - sizes[d]
            if mode == "fill":
                inside = writer.both(inside, writer.compare(">=", start, number(0)))
                inside = writer.both(inside, writer.compare("<=", start, number(last)))
            if last == 0:
                start = number(0)
            elif not (array.holds_indices and sizes[d] == 1):
                start = writer.clamp(start, 0, last)
            where[d] = writer.add(where[d], start)
        for d, i in zip(dims.operand_batching_dims, dims.start_indices_batching_dims):
            where[d] = batch[i]
        value = array.at(tuple(where))
        return writer.select(inside, value, literal(fill, array.kind)) if mode == "fill" else value

    return SymbolicArray(tuple(shape), array.kind, at)


def all_indices(shape: Sequence[int]) -> list[Indices]:
    result: list[Indices] = [()]
    for n in shape:
        result = [indices + (number(i),) for indices in result for i in range(n)]
    return result

"""One call of attention on the host, read from its arguments: which problem it is, and what it binds."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ._arrays import HostArray, host_array
from ._core import InvalidArgument
from ._modifiers import Modifier, read_modifiers
from ._options import FLAGS
from ._request import (
    FLOATS,
    NAMES,
    both_masks,
    by_axes,
    check_integers,
    check_per_sequence,
    check_rank,
    check_sinks,
    check_starts,
    check_types,
    dropout_of,
    engine_of,
    is_a_pair,
    is_packed,
    problem_line,
    scale_of,
    sizes_of,
    window_mask,
)


class Request:
    """The problem of a call, and its arrays. `options` has the keywords of fovea.attention."""

    def __init__(self, q: Any, k: Any, v: Any, options: SimpleNamespace) -> None:
        self.options = options
        scale_of(options.scale), dropout_of(options.dropout_p), engine_of(options.engine)
        arrays = [host_array(name, array) for name, array in zip(NAMES, (q, k, v))]
        for name, array in zip(NAMES, arrays):
            check_rank(name, options.layout, array.shape)
        check_types([array.dtype for array in arrays], FLOATS)
        self.q, self.k, self.v = arrays
        self.lengths = _pair("seq_lens", options.seq_lens)
        self.starts = _pair("cu_seqlens", options.cu_seqlens)
        self.offsets = tuple(_offset(name, getattr(options, name)) for name in ("q_offset", "k_offset"))
        self.packed = is_packed(options.layout, [("cu_seqlens", array) for array in self.starts], ["cu_seqlens"])
        self.sizes = sizes_of(options.layout, [array.shape for array in arrays], self._packed_sizes())
        self._check_counts()
        self.sinks = self._sinks()
        self.modifier = self._modifier()

    def _packed_sizes(self) -> tuple[int, int, int] | None:
        if not self.packed:
            return None
        q, k = self.starts
        check_starts("cu_seqlens", q.shape, k.shape)
        return q.shape[0] - 1, _longest(q), _longest(k)

    def _check_counts(self) -> None:
        counted = [("seq_lens", array) for array in self.lengths]
        counted += zip(("q_offset", "k_offset"), self.offsets)
        for name, array in counted:
            if isinstance(array, HostArray):
                check_per_sequence(name, array.shape, self.sizes.b)

    def _sinks(self) -> HostArray | None:
        if self.options.sinks is None:
            return None
        seen = host_array("sinks", self.options.sinks)
        wanted = "f64" if self.q.dtype == "f64" else "f32"
        check_sinks(seen.shape, self.sizes.h)
        if seen.dtype != wanted or seen.strides != (1,) and self.sizes.h > 1:
            raise InvalidArgument(f"sinks: {seen.dtype} with strides {list(seen.strides)}; must be {wanted} and dense")
        return seen

    def _modifier(self) -> Modifier:
        options, sizes = self.options, self.sizes
        # If an extent equals several of these, the first one is its declaration.
        named = {"Sq": sizes.sq, "Skv": sizes.skv, "H": options.h_global or sizes.h, "B": sizes.b}
        modifiers = (options.score_mod, options.mask_mod, options.score_mod_bprop)
        modifier = read_modifiers(modifiers, options.tensors, options.scalars, named, in_double=self.q.dtype == "f64")
        modifier.mask = both_masks(modifier.mask, window_mask(options.is_causal, options.window_size))
        return modifier

    def line(self, direction: str, **fields: Any) -> str:
        """The problem line of one direction; `fields` are the outputs or gradients asked for."""
        options = self.options
        sizes = dict(vars(self.sizes))
        tokens = {"tq": sizes.pop("t_q"), "tk": sizes.pop("t_k")}
        common: dict[str, Any] = dict(direction=direction, **sizes, dtype=self.q.dtype, layout=options.layout)
        common |= {"cu_q": "bound", "cu_k": "bound", **tokens} if self.packed else {}
        for key, array in zip(("qlens", "klens"), self.lengths):
            common[key] = None if array is None else "bound"
        for key, given in zip(("q_offset", "k_offset"), self.offsets):
            common[key] = "bound" if isinstance(given, HostArray) else None
        common |= {"sink": self.sinks is not None, "dropout": options.dropout_p or None, "h_global": options.h_global}
        common |= {name: bool(getattr(options, name)) for name in FLAGS}
        return problem_line(**common, **self.modifier.fields(), **fields)

    def bindings(self, captured: Mapping[str, HostArray], **operands: HostArray) -> dict[str, Any]:
        """The keywords of Plan.run: operands by name; `captured` has the arrays for gradients of captured tensors and scalars."""
        options, modifier = self.options, self.modifier
        strides = {name: by_axes(array.strides, options.layout, 0) for name, array in operands.items()}
        bound: dict[str, Any] = {name: (array.pointer, strides[name]) for name, array in operands.items()}
        bound["tensors"] = tuple(array.captured(name, captured.get(name)) for name, (_, array) in modifier.tensors.items())
        bound["scalars"] = tuple(
            (name, value, 0, captured[name].pointer if name in captured else 0)
            for name, (_, value) in modifier.scalars.items()
        )
        bound |= {"threads": options.threads, "scale": options.scale}
        bound |= {"b_offset": options.b_offset or None, "h_offset": options.h_offset or None}
        if options.dropout_p:
            bound |= {"seed": options.seed, "offset": options.offset}
        for side, array in zip("qk", self.lengths):
            bound[f"{side}_lengths"] = array.pointer if array is not None else None
        for side, array in zip("qk", self.starts):
            bound[f"{side}_starts"] = array.pointer if array is not None else None
        for side, offset in zip("qk", self.offsets):
            if isinstance(offset, HostArray):
                bound[f"{side}_offsets"] = offset.pointer
            else:
                bound[f"{side}_offset"] = offset or None
        bound["sink"] = self.sinks.pointer if self.sinks is not None else None
        return bound


def _longest(starts: HostArray) -> int:
    numbers = starts.owner.tolist()
    return max((b - a for a, b in zip(numbers, numbers[1:])), default=0)


def _pair(name: str, given: Any) -> tuple[HostArray | None, HostArray | None]:
    """One array for queries and keys, or a pair of them."""
    if given is None:
        return None, None
    if is_a_pair(given):
        q, k = (None if one is None else _counts(name, one) for one in given)
        return q, k
    both = _counts(name, given)
    return both, both


def _offset(name: str, given: Any) -> int | HostArray:
    if isinstance(given, int) or hasattr(given, "__index__") and not getattr(given, "shape", ()):
        return int(given)
    return _counts(name, given)


def _counts(name: str, given: Any) -> HostArray:
    """One integer per sequence as int32. A copy: there are few of them."""
    import numpy

    array = numpy.asarray(given)
    check_integers(name, array.dtype.kind in "iu", array.dtype, array.shape)
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        raise InvalidArgument(f"{name}: has values that do not fit 32 bits")
    return host_array(name, numpy.ascontiguousarray(array, dtype=numpy.int32))

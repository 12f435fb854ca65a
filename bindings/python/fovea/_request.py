"""One call of attention on the host, read from its arguments: which problem it is, and what is bound to
it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ._arrays import HostArray, host_array
from ._core import InvalidArgument
from ._line import both_masks, problem_line, window_mask
from ._modifiers import FLOATS, Modifier, read_modifiers

# Where batch, head, position and feature stand in the shape.
_AXES = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3), "thd": (None, 1, 0, 2)}


@dataclasses.dataclass(frozen=True)
class Options:
    """Everything of a call but q, k and v. fovea.attention says what each is."""

    score_mod: Any = None
    mask_mod: Any = None
    score_mod_bprop: Any = None
    is_causal: bool = False
    window_size: int | Sequence[int] | None = None
    scale: float | None = None
    layout: str = "bhsd"
    seq_lens: Any = None
    cu_seqlens: Any = None
    sinks: Any = None
    dropout_p: float = 0.0
    seed: int = 0
    offset: int = 0
    q_offset: Any = 0
    k_offset: Any = 0
    b_offset: int = 0
    h_offset: int = 0
    h_global: int | None = None
    deterministic: bool = False
    tensors: Mapping[str, Any] | None = None
    scalars: Mapping[str, Any] | None = None
    engine: str | None = None
    threads: int = 0


class Request:
    """The problem of a call, and its arrays."""

    def __init__(self, q: Any, k: Any, v: Any, options: Options) -> None:
        self.options = options
        if options.layout not in _AXES:
            raise InvalidArgument(f"layout is {options.layout!r}; there are: {', '.join(_AXES)}")
        self.q, self.k, self.v = self._operand("q", q), self._operand("k", k), self._operand("v", v)
        for name, array in (("k", self.k), ("v", self.v)):
            if array.dtype != self.q.dtype:
                raise InvalidArgument(
                    f"{name} has elements of type {array.dtype}, q of {self.q.dtype}; they must be the same"
                )
        self.lengths = _pair("seq_lens", options.seq_lens)
        self.starts = _pair("cu_seqlens", options.cu_seqlens)
        self.offsets = tuple(_offset(name, getattr(options, name)) for name in ("q_offset", "k_offset"))
        self.sizes = self._sizes()
        self.sinks = self._sinks()
        self.modifier = self._modifier()

    @property
    def packed(self) -> bool:
        return self.options.layout == "thd"

    def _operand(self, name: str, array: Any) -> HostArray:
        seen = host_array(name, array)
        rank = 3 if self.packed else 4
        if len(seen.shape) != rank:
            raise InvalidArgument(
                f"{name} has the shape {list(seen.shape)}; layout {self.options.layout} has {rank} extents"
            )
        if seen.dtype not in FLOATS:
            raise InvalidArgument(
                f"{name} has elements of type {seen.dtype}; it must be one of {', '.join(FLOATS)}"
            )
        return seen

    def extent(self, array: HostArray, axis: int) -> int:
        """Along batch (0), head, position, feature (3), wherever these stand in the layout."""
        place = _AXES[self.options.layout][axis]
        return array.shape[place] if place is not None else self.batch()

    def batch(self) -> int:
        if not self.packed:
            return self.extent(self.q, 0)
        if self.starts[0] is None or self.starts[1] is None:
            raise InvalidArgument(
                "layout thd needs cu_seqlens: one array of starts for both, or a pair (of q, of k and v)"
            )
        return self.starts[0].shape[0] - 1

    def _sizes(self) -> dict[str, int]:
        q, k, v = self.q, self.k, self.v
        sizes = {
            "b": self.batch(),
            "h": self.extent(q, 1),
            "hkv": self.extent(k, 1),
            "d": q.shape[-1],
            "dv": v.shape[-1],
        }
        for name, what, axis, like in (
            ("k", "batch", 0, q),
            ("v", "batch", 0, q),
            ("k", "features", 3, q),
            ("v", "heads", 1, k),
            ("v", "positions", 2, k),
        ):
            got, rule = self.extent(getattr(self, name), axis), self.extent(like, axis)
            if got != rule:
                raise InvalidArgument(
                    f"{name} has {what} {got}; it must be {rule}, as that of {'q' if like is q else 'k'}"
                )
        if self.packed:
            sizes |= {"tq": self.extent(q, 2), "tk": self.extent(k, 2)}
            sizes |= {"sq": self._longest(0), "skv": self._longest(1)}
        else:
            sizes |= {"sq": self.extent(q, 2), "skv": self.extent(k, 2)}
        for name, pair, count in (
            ("seq_lens", self.lengths, sizes["b"]),
            ("cu_seqlens", self.starts, sizes["b"] + 1),
        ):
            for array in pair:
                if array is not None and array.shape != (count,):
                    raise InvalidArgument(
                        f"{name} has the shape {list(array.shape)}; it must be [{count}] for {sizes['b']} sequences"
                    )
        if not self.packed and any(array is not None for array in self.starts):
            raise InvalidArgument(
                f"cu_seqlens is for layout thd; this is {self.options.layout}: use seq_lens"
            )
        for name, offset in zip(("q_offset", "k_offset"), self.offsets):
            if isinstance(offset, HostArray) and offset.shape != (sizes["b"],):
                raise InvalidArgument(
                    f"{name} has the shape {list(offset.shape)}; it must be a number, or [{sizes['b']}]"
                )
        return sizes

    def _longest(self, side: int) -> int:
        starts = self.starts[side].owner.tolist()  # type: ignore[union-attr]
        return max((b - a for a, b in zip(starts, starts[1:])), default=0)

    def _sinks(self) -> HostArray | None:
        if self.options.sinks is None:
            return None
        seen = host_array("sinks", self.options.sinks)
        wanted = "f64" if self.q.dtype == "f64" else "f32"
        heads = self.sizes["h"]
        if seen.shape != (heads,) or seen.dtype != wanted or seen.strides != (1,) and heads > 1:
            raise InvalidArgument(
                f"sinks is {seen.dtype}{list(seen.shape)} with strides {list(seen.strides)}; it must be {wanted}[{heads}], dense: "
                "one per head of q"
            )
        return seen

    def _modifier(self) -> Modifier:
        options, sizes = self.options, self.sizes
        # In the order in which an extent that fits several of them is declared.
        named = {"Sq": sizes["sq"], "Skv": sizes["skv"], "H": options.h_global or sizes["h"], "B": sizes["b"]}
        modifier = read_modifiers(
            options.score_mod,
            options.mask_mod,
            options.score_mod_bprop,
            options.tensors,
            options.scalars,
            named,
        )
        modifier.mask = both_masks(modifier.mask, window_mask(options.is_causal, options.window_size))
        return modifier

    def line(self, direction: str, **fields: Any) -> str:
        """The problem line of one direction; `fields` are the outputs or gradients asked for."""
        options = self.options
        common: dict[str, Any] = dict(
            direction=direction, **self.sizes, dtype=self.q.dtype, layout=options.layout
        )
        common |= {"cu_q": "bound", "cu_k": "bound"} if self.packed else {}
        for key, array in zip(("qlens", "klens"), self.lengths):
            common[key] = None if array is None else "bound"
        for key, given in zip(("q_offset", "k_offset"), self.offsets):
            common[key] = "bound" if isinstance(given, HostArray) else None
        common |= {
            "sink": self.sinks is not None,
            "dropout": options.dropout_p or None,
            "h_global": options.h_global,
        }
        common["deterministic"] = bool(options.deterministic)
        return problem_line(**common, **self.modifier.fields(), **fields)

    def by_axes(self, array: HostArray) -> tuple[int, tuple[int, int, int, int]]:
        """(pointer, strides by batch, head, position, feature), as Plan.run takes a tensor."""
        strides = tuple(0 if place is None else array.strides[place] for place in _AXES[self.options.layout])
        return array.pointer, strides  # type: ignore[return-value]

    def bindings(self, captured: Mapping[str, HostArray], **operands: HostArray) -> dict[str, Any]:
        """What Plan.run is given: operands by name, `captured` is where gradients of captured things go."""
        options, modifier = self.options, self.modifier
        bound: dict[str, Any] = {name: self.by_axes(array) for name, array in operands.items()}
        bound["tensors"] = tuple(
            array.captured(name, captured.get(name)) for name, (_, array) in modifier.tensors.items()
        )
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


def _pair(name: str, given: Any) -> tuple[HostArray | None, HostArray | None]:
    """One array for queries and keys, or a pair of them."""
    if given is None:
        return None, None
    if (
        isinstance(given, (tuple, list))
        and len(given) == 2
        and all(x is None or hasattr(x, "__len__") for x in given)
    ):
        q, k = (None if one is None else _counts(name, one) for one in given)
        return q, k
    both = _counts(name, given)
    return both, both


def _offset(name: str, given: Any) -> int | HostArray:
    if isinstance(given, int) or hasattr(given, "__index__") and not getattr(given, "shape", ()):
        return int(given)
    return _counts(name, given)


def _counts(name: str, given: Any) -> HostArray:
    """Whole numbers as int32: few, so that they may be copied."""
    import numpy

    array = numpy.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidArgument(
            f"{name} must be whole numbers in one dimension, got {array.dtype}{list(array.shape)}"
        )
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        raise InvalidArgument(f"{name} has values that do not fit 32 bits")
    return host_array(name, numpy.ascontiguousarray(array, dtype=numpy.int32))

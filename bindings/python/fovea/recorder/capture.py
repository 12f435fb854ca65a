"""The tensors that a callback captures: their names, types and extents in the formula language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._arrays import FROM_NUMPY
from .._core import InvalidArgument
from .expression import BOOL, F32, I32, Expression

_DTYPES = {**FROM_NUMPY, "half": "f16", "bool_": "bool"}
_LOADED = {"f32": F32, "f16": F32, "bf16": F32, "f64": F32, "i32": I32, "i64": I32, "u8": I32, "bool": BOOL}
_AXES = ("b", "h", "q", "k")
_SIZES = ("B", "H", "Sq", "Skv")
_TAKEN = re.compile(
    r"score|grad|[bhqk]|B|H|Hkv|Sq|Skv|let|true|false|inf|nan|v\d+"
    r"|abs|sign|min|max|clamp|select|exp2?|expm1|log2?|log1p|r?sqrt|pow|tanh|sigmoid|softplus|erf|sin|cos|tan|floor|ceil"
    r"|round|div|rem|f32|i32|bool|q|k|v|o|sink|lse"
)


class Capture(NamedTuple):
    """A captured tensor: the key that the caller gave it, its name in the formula, and how it is declared."""

    key: str
    name: str
    dtype: str
    extents: tuple[str, ...]
    tensor: Any


def capture(
    key: str, tensor: Any, taken: set[str], sizes: Sequence[int] | None
) -> tuple[Capture, Expression]:
    """The declaration of a tensor, and its load: indexed by position, or by 0 if its extent is 1."""
    dtype = dtype_of(f"tensors[{key!r}]", tensor)
    shape = tuple(int(extent) for extent in tensor.shape)
    extents, indices = _broadcast(key, shape, sizes)
    name = _name(key, taken)
    taken.add(name)
    load = Expression(f"{name}[{', '.join(indices)}]", (), _LOADED[dtype])
    return Capture(key, name, dtype, extents, tensor), load


def dtype_of(name: str, tensor: Any) -> str:
    """The name of its type in the language ("f32", ...). Takes anything with a .dtype and a .shape."""
    if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype"):
        raise InvalidArgument(
            f"{name} is a {type(tensor).__name__}; it must be a tensor, with .shape and .dtype"
        )
    word = str(getattr(tensor.dtype, "name", tensor.dtype)).rsplit(".", 1)[-1]
    if word not in _DTYPES:
        raise InvalidArgument(
            f"{name} has elements of type {word}; captured tensors are {', '.join(dict.fromkeys(_DTYPES.values()))}"
        )
    return _DTYPES[word]


def _broadcast(
    key: str, shape: tuple[int, ...], sizes: Sequence[int] | None
) -> tuple[tuple[str, ...], list[str]]:
    if all(extent == 1 for extent in shape):
        return ("1",) * len(shape), ["0"] * len(shape)
    if len(shape) != 4:
        raise InvalidArgument(
            f"tensors[{key!r}] has the shape {list(shape)}; it must have four extents that broadcast to [B, H, Sq, Skv], each "
            "that size or 1 (or be one element)"
        )
    extents, indices = [], []
    for axis, extent in enumerate(shape):
        if extent == 1:
            extents.append("1")
            indices.append("0")
            continue
        if sizes is not None and extent != sizes[axis]:
            raise InvalidArgument(
                f"tensors[{key!r}] has the extent {extent} along axis {axis}; it must be 1 or {_SIZES[axis]} = {sizes[axis]}"
            )
        extents.append(_SIZES[axis] if sizes is not None else str(extent))
        indices.append(_AXES[axis])
    return tuple(extents), indices


def _name(key: str, taken: set[str]) -> str:
    """The key, if it can be a name of the language; otherwise one made from it."""
    name = re.sub(r"\W", "_", str(key), flags=re.ASCII)[:48] or "t"
    if not re.match(r"[A-Za-z_]", name) or _TAKEN.fullmatch(name):
        name = f"t_{name}"
    count, wanted = 1, name
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name

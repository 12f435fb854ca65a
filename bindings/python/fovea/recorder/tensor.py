"""The tensors that a callback sees (cudnn's tensor attributes, as far as callbacks use them), and the captured ones: their
names, types and extents in the formula language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._arrays import CODES, FROM_NUMPY, dense_strides
from .._core import InvalidArgument
from .expression import BOOL, F32, I32, Expression, as_bool, as_f32, as_i32

if TYPE_CHECKING:
    from .graph import Graph


class data_type:
    """The names of cudnn.data_type, for callbacks that are written without cudnn installed."""

    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    HALF = "HALF"
    BFLOAT16 = "BFLOAT16"
    INT32 = "INT32"
    INT64 = "INT64"
    BOOLEAN = "BOOLEAN"
    NOT_SET = "NOT_SET"


_MEANINGS = {"FLOAT": F32, "DOUBLE": F32, "INT32": I32, "INT64": I32, "BOOLEAN": BOOL, "NOT_SET": None}


def meaning_of(given: Any, argument: str) -> str | None:
    """f32, i32, bool or None of a data type: of cudnn, of `data_type`, or its name."""
    if given is None:
        return None
    name = getattr(given, "name", None) or str(given).rsplit(".", 1)[-1]
    if name in _MEANINGS:
        return _MEANINGS[name]
    raise InvalidArgument(
        f"{argument} is {name}; formulas compute in FLOAT, INT32 and BOOLEAN (rounding to {name} inside one is not there)"
    )


class Tensor:
    """A value of the graph. Its setters return it, as cudnn's do."""

    def __init__(self, graph: Graph, expression: Expression, *, name: str = "", dim: list[int] | None = None) -> None:
        self._graph = graph
        self._expression = expression
        self._name = name
        self._dim = dim

    def set_data_type(self, data_type: Any) -> Tensor:
        """What type the value is stored in: converts it."""
        wanted = meaning_of(data_type, "data_type")
        if wanted is not None:
            self._expression = {F32: as_f32, I32: as_i32, BOOL: as_bool}[wanted](self._expression)
        return self

    _set_data_type = set_data_type

    def get_data_type(self) -> str:
        return {F32: data_type.FLOAT, I32: data_type.INT32, BOOL: data_type.BOOLEAN}[self._expression.type]

    def set_name(self, name: str) -> Tensor:
        self._name = name
        return self

    def get_name(self) -> str:
        return self._name

    def get_dim(self) -> list[int]:
        """Of the score (if the sizes are known) and of captured tensors."""
        if self._dim is None:
            raise InvalidArgument("get_dim: the extents of this tensor are not known while a callback is recorded")
        return list(self._dim)

    def get_stride(self) -> list[int]:
        return list(dense_strides(self.get_dim()))

    def set_dim(self, dim: list[int]) -> Tensor:
        """Accepted if it agrees with what is known; a value has the extents that broadcasting gives it."""
        if self._dim is not None and list(dim) != list(self._dim):
            raise InvalidArgument(f"set_dim({list(dim)}): this tensor has the extents {self._dim}")
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        """Accepted and ignored: a value inside the graph is not stored in memory."""
        return self

    def get_is_virtual(self) -> bool:
        return True

    def set_is_virtual(self, value: bool) -> Tensor:
        return self._only("set_is_virtual", value, True)

    def set_output(self, value: bool) -> Tensor:
        return self._only("set_output", value, False)

    def get_is_pass_by_value(self) -> bool:
        return False

    def _only(self, method: str, value: bool, allowed: bool) -> Tensor:
        if bool(value) != allowed:
            raise InvalidArgument(
                f"{method}({value}): the values of a modifier stay inside it; nothing of it can be an output"
            )
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _NoSuchMethod(
            f"a tensor of the recorder has no '{name}'; it has: set_data_type, get_data_type, set_name, get_name, set_dim, "
            "get_dim, set_stride, get_stride, set_is_virtual, get_is_virtual, set_output, get_is_pass_by_value"
        )


class _NoSuchMethod(InvalidArgument, AttributeError):
    """So that hasattr() still answers."""


# --- captured ---

_DTYPES = {**FROM_NUMPY, "half": "f16", "bool_": "bool", **{name: name for name in CODES}}
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


def capture(key: str, tensor: Any, taken: set[str], sizes: Sequence[int] | None) -> tuple[Capture, Expression]:
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
        raise InvalidArgument(f"{name}: must be a tensor, with .shape and .dtype, got {type(tensor).__name__}")
    word = str(getattr(tensor.dtype, "name", tensor.dtype)).rsplit(".", 1)[-1]
    if word not in _DTYPES:
        raise InvalidArgument(
            f"{name}: elements of type {word}; must be one of {', '.join(dict.fromkeys(_DTYPES.values()))}"
        )
    return _DTYPES[word]


def _broadcast(key: str, shape: tuple[int, ...], sizes: Sequence[int] | None) -> tuple[tuple[str, ...], list[str]]:
    if all(extent == 1 for extent in shape):
        return ("1",) * len(shape), ["0"] * len(shape)
    if len(shape) != 4:
        raise InvalidArgument(
            f"tensors[{key!r}]: shape {list(shape)}; must have four extents that broadcast to [B, H, Sq, Skv], each "
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
                f"tensors[{key!r}]: extent {extent} along axis {axis}; must be 1 or {_SIZES[axis]} = {sizes[axis]}"
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

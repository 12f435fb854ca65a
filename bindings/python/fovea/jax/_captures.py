"""What the formulas of one call capture: arrays and scalars, with names that follow from their order.

Names are a0, a1 ... and s0, s1 ... in the order of first use, so the same structure gets the same text whatever its source.
An array used twice is captured once. Values are kept as they are bound: types that formulas cannot load are cast here,
outside of the custom derivative, where JAX differentiates them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._arrays import FROM_NUMPY
from .._core import InvalidArgument
from ._arrays import SymbolicArray
from ._operations import NoFormula
from ._terms import Term, Writer

# dtype of JAX -> (type in a declaration, kind of what a load gives)
_LOADED = {"i32": "i32", "i64": "i32", "u8": "i32", "bool": "bool"}
TENSOR_TYPES = {name: (ours, _LOADED.get(ours, "f32")) for name, ours in FROM_NUMPY.items()}
_CAST = {"int8": "int32", "int16": "int32", "uint16": "int32", "int4": "int32"}
AXES = ("b", "h", "q", "k")


@dataclasses.dataclass
class TensorCapture:
    name: str
    value: Any
    # for each dimension the coordinate that is its only index, or None
    axes: list[str | None]
    loaded: bool = False


@dataclasses.dataclass
class ScalarCapture:
    name: str
    value: Any  # a rank-0 array of int32 or of the type of Captures.reals
    kind: str


class Captures:
    def __init__(self, reserved: set[str] = frozenset(), reals=jnp.float32):
        self.reals = np.dtype(reals)  # what a score is, and the type of scalars: float64 if q has it
        self.tensors: list[TensorCapture] = []
        self.scalars: list[ScalarCapture] = []
        self._reserved = set(reserved)
        self._avoided: frozenset[str] = frozenset()
        self._named: dict[str, Any] = {}  # by claim()
        self._writers = 0
        self._seen: dict[int, tuple[Any, Any]] = {}  # id -> (what keeps the id alive, its capture)

    def copy(self) -> "Captures":
        other = Captures(self._reserved, self.reals)
        other.tensors = [dataclasses.replace(t, axes=list(t.axes)) for t in self.tensors]
        other.scalars = list(self.scalars)
        other._writers = self._writers
        other._avoided = self._avoided
        other._named = dict(self._named)
        new = {id(t): u for t, u in zip(self.tensors, other.tensors)}
        other._seen = {key: (kept, new.get(id(c), c)) for key, (kept, c) in self._seen.items()}
        return other

    def adopt(self, other: "Captures") -> None:
        """Takes over the state of a copy."""
        self.__dict__.update(other.__dict__)

    def writer(self) -> Writer:
        """A writer whose names no other formula of the call uses."""
        self._writers += 1
        return Writer(f"t{self._writers}_")

    def avoid(self, names: set[str]) -> None:
        """Reserves names that the caller's formulas use."""
        self._avoided = frozenset(names)

    def reserve(self, name: str) -> None:
        if name in self._reserved:
            raise InvalidArgument(f"{name!r} is captured twice; give the captured things different names")
        self._reserved.add(name)

    def claim(self, name: str, value) -> bool:
        """Is `name` new? Formulas of one call may share a captured tensor; two different ones of the same name are refused."""
        known = self._named.get(name)
        is_same_number = isinstance(known, (int, float)) and isinstance(value, (int, float)) and known == value
        if name in self._named and (known is value or is_same_number):
            return False
        self.reserve(name)
        self._named[name] = value
        return True

    def _fresh(self, letter: str, count: int) -> str:
        while f"{letter}{count}" in self._reserved | self._avoided:
            count += 1
        self._reserved.add(f"{letter}{count}")
        return f"{letter}{count}"

    def add_tensor(self, value, name: str | None = None) -> TensorCapture:
        def made() -> TensorCapture:
            array = jnp.asarray(value)
            array = array.astype(bound_type(array.dtype, reals=self.reals))
            return TensorCapture(name or self._fresh("a", len(self.tensors)), array, [None] * array.ndim)

        return self._added(self.tensors, value, name, made)

    def add_scalar(self, value, name: str | None = None) -> ScalarCapture:
        def made() -> ScalarCapture:
            array = jnp.asarray(value)
            kind = "f32" if jnp.issubdtype(array.dtype, jnp.floating) else "i32"
            array = array.astype(self.reals if kind == "f32" else jnp.int32)
            return ScalarCapture(name or self._fresh("s", len(self.scalars)), array, kind)

        return self._added(self.scalars, value, name, made)

    def _added(self, captures: list, value, name: str | None, made: Callable):
        """The capture of a value: a new one, unless it was captured before and is not to have a name of its own."""
        if name is None and id(value) in self._seen:
            return self._seen[id(value)][1]
        captures.append(made())
        self._seen.setdefault(id(value), (value, captures[-1]))
        return captures[-1]

    def load(self, value, indices: list[str], name: str | None = None) -> str:
        """The text of an element of an array, which is captured."""
        capture = self.add_tensor(value, name)
        note_load(capture, indices)
        return f"{capture.name}[{', '.join(indices)}]"

    def scalar_term(self, value, writer: Writer) -> Term:
        capture = self.add_scalar(value)
        term = Term(capture.name, capture.kind)
        if np.dtype(getattr(value, "dtype", np.float32)) == np.bool_:
            return writer.let(f"{term.text} != 0", "bool")
        return term

    def symbolic(self, value, writer: Writer) -> SymbolicArray:
        """A captured array as something to index."""
        capture = self.add_tensor(value)
        _, kind = TENSOR_TYPES[np.dtype(capture.value.dtype).name]

        def at(indices: tuple[Term, ...]) -> Term:
            return writer.let(self.load(value, [i.text for i in indices]), kind)

        return SymbolicArray(tuple(capture.value.shape), kind, at, holds_indices=True)


def note_load(capture: TensorCapture, indices: list[str]) -> None:
    """Remembers which coordinates index a tensor: they decide how it may be sharded, and what its extents are called.

    A dimension that both q and k index (documents of one sequence) counts as that of the first of them."""
    for d, index in enumerate(indices):
        axis, before = index if index in AXES else None, capture.axes[d]
        both_positions = axis in ("q", "k") and before in ("q", "k")
        if not capture.loaded or both_positions:
            capture.axes[d] = before if both_positions else axis
        elif before != axis:
            capture.axes[d] = None
    capture.loaded = True


def bound_type(dtype, what: str = "a captured array", reals=jnp.float32) -> str:
    """The type in which an array of this type is bound; float64 is rounded, unless reals are float64."""
    name = np.dtype(dtype).name
    if name not in TENSOR_TYPES and name not in _CAST:
        raise NoFormula(f"{what} has the type {name}; formulas load {', '.join(TENSOR_TYPES)} (cast it first)")
    return _CAST.get(name, np.dtype(reals).name if name == "float64" else name)

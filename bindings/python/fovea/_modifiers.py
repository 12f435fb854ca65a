"""From modifiers as callers pass them (texts, Programs, callbacks) to formula texts with the host arrays and numbers that they
capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from . import recorder
from ._arrays import HostArray, host_array
from ._core import InvalidArgument
from ._request import (
    FLOATS,
    check_callback_scalars,
    check_captured_name,
    check_modifiers,
    no_modifier,
    no_number,
    one_is_a_callback,
    scalars_of,
    symbolic_extents,
)
from .program import Program, Texts, combined, texts_of

_KINDS = {
    "score_mod": "a formula text, a fovea.Program or a callback (graph, score, tensors)",
    "mask_mod": "a formula text of positions, or a fovea.Program with a mask alone",
    "score_mod_bprop": "a formula text of score and grad, or a fovea.Program with a bprop",
}


@dataclasses.dataclass
class Modifier:
    """Formulas, and what is bound to them. `names` maps the caller's keys to names in the formulas."""

    mod: str | None = None
    mask: str | None = None
    bprop: str | None = None
    tensors: dict[str, tuple[tuple[str, ...], HostArray]] = dataclasses.field(default_factory=dict)
    scalars: dict[str, tuple[str, float]] = dataclasses.field(default_factory=dict)
    names: dict[str, str] = dataclasses.field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """The keywords of problem_line."""
        declared = [(name, array.dtype, extents) for name, (extents, array) in self.tensors.items()]
        scalars = [(name, dtype) for name, (dtype, _) in self.scalars.items()]
        return {"mod": self.mod, "mask": self.mask, "bprop": self.bprop, "tensors": declared, "scalars": scalars}

    def differentiable(self) -> list[str]:
        """The caller's keys of everything that has a gradient."""
        kinds = {name: array.dtype in FLOATS for name, (_, array) in self.tensors.items()}
        kinds |= {name: dtype == "f32" for name, (dtype, _) in self.scalars.items()}
        return [key for key, name in self.names.items() if kinds[name]]


@dataclasses.dataclass
class _ModifierReader:
    """What a caller's formulas capture, by the caller's names, and what has been made of it so far."""

    tensors: Mapping[str, Any]
    scalars: Mapping[str, float]
    sizes: dict[str, int]
    in_double: bool
    made: Modifier

    def add_tensor(self, key: str, name: str, extents: tuple[str, ...] | None, dtype: str | None = None) -> None:
        array = host_array(f"tensors[{key!r}]", self.tensors[key])
        if dtype is not None and array.dtype != dtype:
            raise InvalidArgument(f"tensors[{key!r}]: {array.dtype}; must be {dtype}, as the program declares")
        extents = symbolic_extents(array.shape, self.sizes) if extents is None else extents
        before = self.made.tensors.get(name)
        if before is not None and before[0] != extents:
            raise InvalidArgument(f"two formulas declare the tensor {name!r}, as {list(before[0])} and as {list(extents)}")
        self.made.tensors[name] = (extents, array)
        self.made.names[key] = name

    def add_scalar(self, name: str) -> None:
        value = self.scalars[name]
        self.made.scalars[name] = ("i32" if isinstance(value, int) else "f32", value)
        self.made.names[name] = name

    def add_program(self, program: Program) -> None:
        for name, dtype, extents in program.tensors:
            self.add_tensor(name, name, extents, dtype)
        for name, *_ in program.scalars:
            self.add_scalar(name)

    def read(self, name: str, modifier: Any) -> Texts:
        if not isinstance(modifier, (str, Program)):
            raise no_modifier(name, modifier, _KINDS[name])
        if isinstance(modifier, Program):
            self.add_program(modifier)
        return texts_of(name, modifier, self.in_double)

    def record(self, score_mod: Any, bprop: Any) -> None:
        if bprop is not None and not callable(bprop):
            raise one_is_a_callback()
        arrays = {key: host_array(f"tensors[{key!r}]", array) for key, array in self.tensors.items()}
        sizes = tuple(self.sizes[name] for name in ("B", "H", "Sq", "Skv"))
        recorded = recorder.record(score_mod, bprop, tensors=arrays, sizes=sizes)  # type: ignore[arg-type]
        self.made.mod, self.made.bprop = recorded.mod, recorded.bprop
        for capture in recorded.captures:
            self.add_tensor(capture.key, capture.name, capture.extents)
        # A tensor that the callback does not use is declared all the same: its gradient is zero.
        for key in self.tensors:
            if key not in self.made.names:
                self.add_tensor(key, f"unused_{len(self.made.names)}", None)

    def add_the_rest(self) -> None:
        """What texts capture is declared as it is given."""
        for key in self.tensors:
            if key not in self.made.names:
                self.add_tensor(key, key, None)
        for name in self.scalars:
            if name not in self.made.names:
                self.add_scalar(name)


def read_modifiers(
    modifiers: tuple[Any, Any, Any],
    tensors: Mapping[str, Any] | None,
    scalars: Mapping[str, Any] | None,
    sizes: dict[str, int],
    in_double: bool,
) -> Modifier:
    """score_mod, mask_mod and score_mod_bprop as one Modifier. `sizes` are B, H, Sq and Skv by these names; `in_double`: q is
    f64."""
    if all(x is None for x in modifiers) and not tensors and not scalars:  # == would compare the elements of an array
        return Modifier()
    check_modifiers(*modifiers, {"tensors": (tensors, ""), "scalars": (scalars, "")})
    tensors, numbers = tensors or {}, {name: _number(name, value) for name, value in (scalars or {}).items()}
    for name in (*tensors, *numbers):
        check_captured_name(name)
    score_mod, mask_mod, bprop = modifiers
    programs = [x for x in modifiers if isinstance(x, Program)]
    has_text, has_callback = any(isinstance(x, str) for x in modifiers), recorder.is_callback(score_mod)
    if has_callback and not has_text:
        check_callback_scalars(numbers)
    values = scalars_of(programs, has_text or has_callback, tensors, numbers)
    made = Modifier()
    reader = _ModifierReader(tensors, values, sizes, in_double, made)
    if has_callback:
        _, made.mask, _ = combined((None, mask_mod, None), reader.read)
        reader.record(score_mod, bprop)
    else:
        made.mod, made.mask, made.bprop = combined(modifiers, reader.read)
    reader.add_the_rest()
    return made


def _number(name: str, value: Any) -> float:
    """A Python int for an integer, a float for any other number; NumPy's numbers count, too."""
    if isinstance(value, bool) or not hasattr(value, "__float__") or getattr(value, "shape", ()) != ():
        raise no_number(name, value)
    is_whole = isinstance(value, int) or getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u")
    return int(value) if is_whole else float(value)

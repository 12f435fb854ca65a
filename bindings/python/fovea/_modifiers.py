"""From what a caller gives as modifiers (texts, Programs, callbacks) to formula texts with the host arrays and numbers
that they capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from . import recorder
from ._arrays import NAMES_IN_NUMPY, HostArray, host_array
from ._core import InvalidArgument
from ._request import FLOATS, both_masks, check_captured, check_captured_name, check_modifiers, no_modifier, symbolic_extents
from .program import Program


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
class _Given:
    """The arguments of a caller, and what has been made of them so far."""

    tensors: Mapping[str, Any]
    scalars: Mapping[str, Any]
    sizes: dict[str, int]
    in_double: bool
    made: Modifier

    def texts_of(self, program: Program) -> tuple:
        """Its mod, mask and bprop."""
        return program.in_double if self.in_double else (program.mod, program.mask, program.bprop)

    def add_tensor(self, key: str, name: str, extents: tuple[str, ...] | None, dtype: str | None = None) -> None:
        array = host_array(f"tensors[{key!r}]", self.tensors[key])
        if dtype is not None and array.dtype != dtype:
            raise InvalidArgument(f"tensors[{key!r}] has elements of type {array.dtype}; the program declares {dtype}")
        extents = symbolic_extents(array.shape, self.sizes) if extents is None else extents
        before = self.made.tensors.get(name)
        if before is not None and before[0] != extents:
            raise InvalidArgument(f"two formulas declare the tensor {name!r}, as {list(before[0])} and as {list(extents)}")
        self.made.tensors[name] = (extents, array)
        self.made.names[key] = name

    def add_scalar(self, name: str, dtype: str | None = None, default: float | None = None) -> None:
        value = self.scalars.get(name, default)
        if value is None:
            raise InvalidArgument(f"scalars has no {name!r}, which a formula captures and has no default for")
        whole = isinstance(value, int) or getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u")
        if isinstance(value, bool) or not hasattr(value, "__float__") or getattr(value, "shape", ()) != ():
            raise InvalidArgument(f"scalars[{name!r}] is {value!r}; it must be a number")
        self.made.scalars[name] = (dtype or ("i32" if whole else "f32"), int(value) if whole else float(value))
        self.made.names[name] = name

    def add_program(self, program: Program) -> None:
        for name, dtype, extents in program.tensors:
            if name not in self.tensors:
                raise InvalidArgument(f"tensors has no {name!r}, which the program captures")
            self.add_tensor(name, name, extents, dtype)
        for name, dtype, default in program.scalars:
            self.add_scalar(name, dtype, default)


def read_modifiers(
    score_mod: Any,
    mask_mod: Any,
    score_mod_bprop: Any,
    tensors: Mapping[str, Any] | None,
    scalars: Mapping[str, Any] | None,
    sizes: dict[str, int],
    in_double: bool,
) -> Modifier:
    """The arguments of a call as one Modifier. `sizes` are B, H, Sq and Skv by these names; `in_double`: q is f64."""
    check_captured((("tensors", tensors), ("scalars", scalars)), (score_mod, mask_mod))
    given = _Given(tensors or {}, scalars or {}, sizes, in_double, Modifier())
    check_modifiers(score_mod, mask_mod, score_mod_bprop)
    for name in (*given.tensors, *given.scalars):
        check_captured_name(name)
    texts = [part for part in (score_mod, mask_mod, score_mod_bprop) if isinstance(part, str)]
    _read_score_mod(given, score_mod, score_mod_bprop)
    _read_mask_mod(given, mask_mod)
    for key in given.tensors:
        if key not in given.made.names:
            _only_for_texts(texts, "tensors", key)
            given.add_tensor(key, key, None)
    for name in given.scalars:
        if name not in given.made.names:
            _only_for_texts(texts, "scalars", name)
            given.add_scalar(name)
    return given.made


def _only_for_texts(texts: list[str], argument: str, key: str) -> None:
    if not texts:
        raise InvalidArgument(f"{argument} has {key!r}, which no formula captures")


def _read_score_mod(given: _Given, score_mod: Any, bprop: Any) -> None:
    made = given.made
    if score_mod is None:
        return
    if isinstance(score_mod, str):
        made.mod = score_mod
    elif isinstance(score_mod, Program):
        made.mod, made.mask, made.bprop = given.texts_of(score_mod)
        given.add_program(score_mod)
    elif recorder.is_callback(score_mod):
        _record(given, score_mod, bprop)
        return
    else:
        raise no_modifier("score_mod", score_mod, "a formula text, a fovea.Program or a callback (graph, score, tensors)")
    if bprop is None:
        return
    if made.bprop is not None:
        raise InvalidArgument("score_mod_bprop is given, and score_mod has a bprop of its own; give one of them")
    if isinstance(bprop, Program) and bprop.bprop:
        given.add_program(bprop)
        bprop = given.texts_of(bprop)[2]
    if not isinstance(bprop, str):
        raise InvalidArgument("score_mod_bprop must be what score_mod is: a formula text of score and grad")
    made.bprop = bprop


def _record(given: _Given, score_mod: Any, bprop: Any) -> None:
    if bprop is not None and not callable(bprop):
        raise InvalidArgument("score_mod_bprop must be what score_mod is: a callback (graph, grad, tensors)")
    arrays = {key: _Described(f"tensors[{key!r}]", array) for key, array in given.tensors.items()}
    sizes = tuple(given.sizes[name] for name in ("B", "H", "Sq", "Skv"))
    recorded = recorder.record(score_mod, bprop, tensors=arrays, sizes=sizes)  # type: ignore[arg-type]
    given.made.mod, given.made.bprop = recorded.mod, recorded.bprop
    for capture in recorded.captures:
        given.add_tensor(capture.key, capture.name, capture.extents)
    # A tensor that the callback does not use is declared all the same: its gradient is zero.
    for key in given.tensors:
        if key not in given.made.names:
            given.add_tensor(key, f"unused_{len(given.made.names)}", None)


class _Described:
    """The shape and type of an array of any library, which is all that the recorder reads."""

    def __init__(self, name: str, array: Any) -> None:
        seen = host_array(name, array)
        self.shape = seen.shape
        self.dtype = NAMES_IN_NUMPY[seen.dtype]


def _read_mask_mod(given: _Given, mask_mod: Any) -> None:
    if mask_mod is None:
        return
    if isinstance(mask_mod, str):
        given.made.mask = both_masks(given.made.mask, mask_mod)
    elif isinstance(mask_mod, Program) and mask_mod.mask and not mask_mod.mod:
        given.add_program(mask_mod)
        given.made.mask = both_masks(given.made.mask, given.texts_of(mask_mod)[1])
    else:
        raise no_modifier("mask_mod", mask_mod, "a formula text of positions, or a fovea.Program with a mask alone")

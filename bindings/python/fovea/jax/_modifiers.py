"""From modifiers to formulas: functions, texts, Programs, callbacks that build a cuDNN graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _core
from .._request import (
    TraceError,
    by_arguments,
    check_captured_name,
    check_modifiers,
    no_modifier,
    not_captured,
    not_given,
    one_is_a_callback,
    program_line,
    substitute,
)
from ..program import Program, Texts, combined, texts_of
from ..recorder import is_callback, record
from ._captures import TENSOR_TYPES, Captures, bound_type, note_load
from ._operations import NoFormula
from ._rewrite import rewrite_loads, tokens
from ._terms import LEAVES, Term
from ._trace import trace

Modifier = Callable | str | Program
_TENSORS = ("score_mod_tensors", "score_mod_bprop_tensors", "mask_mod_tensors")


@dataclasses.dataclass(frozen=True)
class GivenModifiers:
    """The modifiers of a call, as the caller gave them."""

    score_mod: Modifier | None = None
    mask_mod: Modifier | None = None
    score_mod_bprop: Modifier | None = None
    score_mod_tensors: Mapping[str, Any] | None = None
    score_mod_bprop_tensors: Mapping[str, Any] | None = None
    mask_mod_tensors: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "GivenModifiers":
        """Those among the keywords of a call."""
        return cls(**{field.name: keywords[field.name] for field in dataclasses.fields(cls)})

    def check(self) -> None:
        """Raises if arguments do not go together."""
        modifiers = {name: getattr(self, name) for name in ("score_mod", "mask_mod", "score_mod_bprop")}
        captured = {f"{name}_tensors": (getattr(self, f"{name}_tensors"), name) for name in modifiers}
        check_modifiers(*modifiers.values(), captured)
        for name, value in modifiers.items():
            if value is not None and not isinstance(value, (str, Program)) and not callable(value):
                raise no_modifier(name, value, "a function, a formula text or a fovea.Program")

    def names(self) -> set[str]:
        """Of all that is captured by name."""
        programs = [x for x in (self.score_mod, self.mask_mod, self.score_mod_bprop) if isinstance(x, Program)]
        found = {name for p in programs for name, *_ in (*p.tensors, *p.scalars)}
        return found.union(*(getattr(self, name) or () for name in _TENSORS))


def formulas(given: GivenModifiers, captures: Captures, sizes, leaves: Mapping[str, str]) -> Texts:
    """(mod, mask, bprop) of `given`. `leaves` has the texts that replace score, q or k; `sizes` is (B, H, Sq, Skv)."""
    by_callback = is_callback(given.score_mod)
    if given.score_mod_bprop is not None and by_callback != is_callback(given.score_mod_bprop, (3, 4)):
        raise one_is_a_callback()
    read = lambda name, modifier: _formulas(name, modifier, _tensors_of(given, name), captures, leaves)  # noqa: E731
    if by_callback:
        mod, bprop = (_placed(text, leaves) for text in _recorded(given, captures, sizes))
        mask = None if given.mask_mod is None else read("mask_mod", given.mask_mod)[1]
    else:
        mod, mask, bprop = combined((given.score_mod, given.mask_mod, given.score_mod_bprop), read)
    return leaves.get("score") if mod is None else mod, mask, bprop


def _tensors_of(given: GivenModifiers, name: str) -> Mapping[str, Any] | None:
    """What a modifier captures by name. A derivative that is a text or a Program may name what its score_mod does."""
    own, modifier = getattr(given, f"{name}_tensors"), getattr(given, name)
    if name != "score_mod_bprop" or not isinstance(modifier, (str, Program)):
        return own
    return {**_used_by(modifier, given.score_mod_tensors or {}), **(own or {})}


def _used_by(modifier: str | Program, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that a hand-written derivative shares with its score_mod."""
    if isinstance(modifier, Program):
        used = {name for name, *_ in (*modifier.tensors, *modifier.scalars)}
    else:
        used = set(tokens(modifier))
    return {name: value for name, value in tensors.items() if name in used}


# --- functions, texts and Programs ---


def _formulas(what: str, modifier: Modifier, tensors, captures: Captures, leaves) -> Texts:
    if isinstance(modifier, (str, Program)):
        return _text_formula(what, modifier, tensors or {}, captures, leaves)
    terms = {
        name: Term(text, LEAVES[name].kind, nonnegative=LEAVES[name].nonnegative)
        for name, text in leaves.items()
        if name in LEAVES
    }
    return texts_of(what, trace(what, modifier, captures, tensors, terms), False)


def _text_formula(what: str, modifier: str | Program, tensors: Mapping[str, Any], captures: Captures, leaves):
    values = dict(tensors)
    for name in values:
        check_captured_name(name)
    if isinstance(modifier, Program):
        program = modifier
        values = {**{name: d for name, _, d in program.scalars if d is not None}, **values}
        captured = [name for name, *_ in (*program.tensors, *program.scalars)]
        for name in captured:
            if name not in values:
                raise not_given(f"{what}_tensors", name)
    else:
        key = {"score_mod": "mod", "mask_mod": "mask", "score_mod_bprop": "bprop"}[what]
        texts = {key: modifier} if key != "bprop" else {"mod": "score", "bprop": modifier}
        captured = tokens(modifier)
        arrays = [(n, TENSOR_TYPES[_type(n, v, captures)][0], np.shape(v)) for n, v in values.items() if np.ndim(v)]
        scalars = [(n, "i32" if _is_integer(v) else "f32") for n, v in values.items() if not np.ndim(v)]
        try:
            program = Program(program_line(**texts, tensors=arrays, scalars=scalars))
        except _core.InvalidArgument as error:
            argument = f"{what}_tensors"
            raise _core.InvalidArgument(by_arguments(str(error), argument, f"{argument}={{...}}")) from None
    for name in values:
        if name not in captured:
            raise not_captured(f"{what}_tensors", name)
    bound = _bind(program, values, captures)
    texts = texts_of(what, program, captures.reals == np.float64)
    for text in texts:
        _note_loads(text, bound)
    return tuple(_placed(text, leaves) for text in texts)


def _bind(program: Program, values: Mapping[str, Any], captures: Captures) -> dict:
    for name, *_ in program.tensors:
        if captures.claim(name, values[name]):
            captures.add_tensor(values[name], name)
    for name, kind, _ in program.scalars:
        if captures.claim(name, values[name]):
            value = jnp.asarray(values[name], jnp.int32 if kind == "i32" else captures.reals)
            captures.add_scalar(value, name)
    names = {name for name, *_ in program.tensors}
    return {t.name: t for t in captures.tensors if t.name in names}


def _note_loads(text: str | None, bound: dict) -> None:
    def note(name: str, indices: list[str]) -> str:
        if name in bound:
            note_load(bound[name], indices)
        return f"{name}[{', '.join(indices)}]"

    if text is not None:
        rewrite_loads(text, note)


def _placed(text: str | None, leaves: Mapping[str, str]) -> str | None:
    return substitute(text, leaves) if text is not None and leaves else text


def _type(name: str, value, captures: Captures) -> str:
    try:
        return bound_type(jnp.asarray(value).dtype, f"the captured {name!r}", captures.reals)
    except NoFormula as error:
        raise TraceError(str(error)) from None


def _is_integer(value) -> bool:
    return not jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating)


# --- callbacks (graph, score, tensors) ---


def _recorded(given: GivenModifiers, captures: Captures, sizes):
    """A callback that builds a graph node by node, recorded by the same recorder as for PyTorch."""

    def arrays(tensors):
        # A number is captured as an array of rank 0: a new value is bound, and builds nothing.
        return {name: jnp.asarray(value) for name, value in (tensors or {}).items()}

    bprop_tensors = given.score_mod_bprop_tensors
    recorded = record(
        given.score_mod,
        given.score_mod_bprop,
        tensors=arrays(given.score_mod_tensors),
        bprop_tensors=None if bprop_tensors is None else arrays(bprop_tensors),
        sizes=sizes,
    )
    bound = {}
    for capture in recorded.captures:
        captures.reserve(capture.name)
        bound[capture.name] = captures.add_tensor(capture.tensor, capture.name)
    for text in (recorded.mod, recorded.bprop):
        _note_loads(text, bound)
    return recorded.mod, recorded.bprop

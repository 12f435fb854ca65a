"""From modifiers to formulas: functions, texts, Programs, callbacks that build a cuDNN graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _core
from .._core import InvalidArgument
from .._request import TraceError, both_masks, check_captured, check_modifiers, no_modifier, program_line
from ..program import Program
from ._captures import TENSOR_TYPES, Captures, bound_type, note_load
from ._operations import NoFormula
from ._rewrite import rewrite_loads, substitute, tokens
from ._terms import LEAVES, Term
from ._trace import trace

Modifier = Callable | str | Program
_TENSORS = ("score_mod_tensors", "score_mod_bprop_tensors", "mask_mod_tensors")


@dataclasses.dataclass(frozen=True)
class Given:
    """The modifiers of a call, as the caller gave them."""

    score_mod: Modifier | None = None
    mask_mod: Modifier | None = None
    score_mod_bprop: Modifier | None = None
    score_mod_tensors: Mapping[str, Any] | None = None
    score_mod_bprop_tensors: Mapping[str, Any] | None = None
    mask_mod_tensors: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "Given":
        """Those among the keywords of a call."""
        return cls(**{field.name: keywords[field.name] for field in dataclasses.fields(cls)})

    def check(self) -> None:
        """Raises if arguments do not go together."""
        check_modifiers(self.score_mod, self.mask_mod, self.score_mod_bprop)
        for name in ("score_mod_tensors", "score_mod_bprop_tensors"):
            if self.score_mod is None and getattr(self, name) is not None:
                raise InvalidArgument(f"{name}: given without score_mod")
        if self.mask_mod is None and self.mask_mod_tensors is not None:
            raise InvalidArgument("mask_mod_tensors: given without mask_mod")
        if self.score_mod_bprop is None and self.score_mod_bprop_tensors is not None:
            raise InvalidArgument("score_mod_bprop_tensors: given without score_mod_bprop")
        for name in ("score_mod", "mask_mod", "score_mod_bprop"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, Program)) and not callable(value):
                raise no_modifier(name, value, "a function, a formula text or a fovea.Program")
        check_captured(((name, getattr(self, name)) for name in _TENSORS), (self.score_mod, self.mask_mod))

    def names(self) -> set[str]:
        """Checks the names of captured tensors."""
        programs = [x for x in (self.score_mod, self.mask_mod, self.score_mod_bprop) if isinstance(x, Program)]
        found = {name for p in programs for name, *_ in (*p.tensors, *p.scalars)}
        return found.union(*(getattr(self, name) or () for name in _TENSORS))


@dataclasses.dataclass(frozen=True)
class Formulas:
    mod: str | None = None
    mask: str | None = None
    bprop: str | None = None


def formulas(given: Given, captures: Captures, sizes, leaves: Mapping[str, str]) -> Formulas:
    """The formulas of `given`. `leaves` has the texts that replace score, q or k; `sizes` is (B, H, Sq, Skv)."""
    given.check()
    mod = masks = bprop = None
    if _is_callback(given.score_mod):
        mod, bprop = _recorded(given, captures, sizes)
        mod, bprop = _placed(mod, leaves), _placed(bprop, leaves)
    elif given.score_mod is not None:
        mod, own_mask, bprop = _formula("score_mod", given.score_mod, given.score_mod_tensors, captures, leaves)
        masks = [own_mask] if own_mask else []
    if given.score_mod_bprop is not None and not _is_callback(given.score_mod):
        if _is_callback(given.score_mod_bprop):
            raise InvalidArgument("score_mod_bprop takes (graph, score, tensors), so score_mod must do so too")
        tensors = given.score_mod_bprop_tensors
        if isinstance(given.score_mod_bprop, (str, Program)):
            tensors = {**_used_by(given.score_mod_bprop, given.score_mod_tensors or {}), **(tensors or {})}
        _, _, bprop = _formula("score_mod_bprop", given.score_mod_bprop, tensors, captures, leaves)
    if given.mask_mod is not None:
        _, mask, _ = _formula("mask_mod", given.mask_mod, given.mask_mod_tensors, captures, leaves)
        masks = [*(masks or []), mask]
    if mod is None and "score" in leaves:
        mod = leaves["score"]
    return Formulas(mod, both_masks(*masks or []), bprop)


def _used_by(modifier: str | Program, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that a hand-written derivative shares with its score_mod."""
    if isinstance(modifier, Program):
        used = {name for name, *_ in (*modifier.tensors, *modifier.scalars)}
    else:
        used = set(tokens(modifier))
    return {name: value for name, value in tensors.items() if name in used}


def _is_callback(modifier) -> bool:
    if modifier is None or isinstance(modifier, (str, Program)):
        return False
    from .. import recorder

    return recorder.is_callback(modifier)


# --- functions, texts and Programs: (mod, mask, bprop) ---


def _formula(what: str, modifier: Modifier, tensors, captures: Captures, leaves):
    if isinstance(modifier, (str, Program)):
        return _text_formula(what, modifier, tensors or {}, captures, leaves)
    terms = {
        name: Term(text, LEAVES[name].kind, nonnegative=LEAVES[name].nonnegative)
        for name, text in leaves.items()
        if name in LEAVES
    }
    text = trace(what, modifier, captures, tensors, terms)
    return {"score_mod": (text, None, None), "mask_mod": (None, text, None)}.get(what, (None, None, text))


def _text_formula(what: str, modifier: str | Program, tensors: Mapping[str, Any], captures: Captures, leaves):
    values = dict(tensors)
    if isinstance(modifier, Program):
        program = modifier
        values = {**{name: d for name, _, d in program.scalars if d is not None}, **values}
        names = [name for name, *_ in (*program.tensors, *program.scalars)]
        missing = [name for name in names if name not in values]
        if missing:
            raise InvalidArgument(f"{what} captures {', '.join(missing)}: give {what}_tensors with these names")
    else:
        key = {"score_mod": "mod", "mask_mod": "mask", "score_mod_bprop": "bprop"}[what]
        texts = {key: modifier} if key != "bprop" else {"mod": "score", "bprop": modifier}
        known = {name: v for name, v in values.items() if name in tokens(modifier)}
        unused = [name for name in values if name not in known]
        if unused:
            raise InvalidArgument(f"{what}_tensors has {', '.join(unused)}, which the formula {modifier!r} does not use")
        arrays = [(n, TENSOR_TYPES[_type(n, v, captures)][0], np.shape(v)) for n, v in known.items() if np.ndim(v)]
        scalars = [(n, "i32" if _is_integer(v) else "f32") for n, v in known.items() if not np.ndim(v)]
        try:
            program = Program(program_line(**texts, tensors=arrays, scalars=scalars))
        except _core.InvalidArgument as error:
            if "unknown" not in str(error):
                raise
            raise _core.InvalidArgument(f"{error}\nWhat {what} captures is given by name, in {what}_tensors") from None
    bound = _bind(program, values, captures)
    texts = list(program.in_double if captures.reals == np.float64 else (program.mod, program.mask, program.bprop))
    if what == "score_mod_bprop":
        texts[:2] = None, None
    elif what == "mask_mod" and (program.mod or program.bprop):
        raise InvalidArgument(f"mask_mod is a Program with a mod; give it as score_mod: {program!r}")
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


def _recorded(given: Given, captures: Captures, sizes):
    """A callback that builds a graph node by node, recorded by the same recorder as for PyTorch."""
    from .. import recorder

    def arrays(tensors):
        # A number is captured as an array of rank 0: a new value is bound, and builds nothing.
        return {name: jnp.asarray(value) for name, value in (tensors or {}).items()}

    bprop_tensors = given.score_mod_bprop_tensors
    recorded = recorder.record(
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

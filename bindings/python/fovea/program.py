"""Formulas as Python values: parsed, printed, differentiated, drawn."""

from __future__ import annotations

import contextlib
import html
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from ._request import both_masks, by_arguments, program_line, substitute

if TYPE_CHECKING:
    from .picture import Picture

_LINE = re.compile(r"\s*(mod|mask|bprop|tensor|scalar)\s*=(?!=)")


class Text(str):
    """A string whose repr is itself, and which a notebook shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


class Program:
    """Formulas with what they capture. Immutable; Programs of equal structure are equal, whatever names they use.

    `mod`, `mask` and `bprop` are the texts (or None), `tensors` and `scalars` what they capture: (name, dtype, extents) and
    (name, dtype, default or None)."""

    __slots__ = ("core", "mod", "mask", "bprop", "tensors", "scalars", "_in_double", "_hash")

    def __init__(self, line: str) -> None:
        self.core = _core.Program(line)
        self.mod, self.mask, self.bprop = _texts(self.core.text())
        self._in_double = _texts(self.core.text(in_double=True))
        self.tensors = tuple(
            (name, dtype, tuple(extents.split(",")) if extents else ()) for name, dtype, extents, _ in self.core.tensors
        )
        self.scalars = self.core.scalars
        self._hash: int | None = None

    @property
    def text(self) -> str:
        """The canonical line; `Program(p.text) == p`."""
        return self.core.text()

    def texts(self, in_double: bool) -> tuple[str | None, ...]:
        """(mod, mask, bprop); in double the literals are doubles, as with f64 tensors."""
        return self._in_double if in_double else (self.mod, self.mask, self.bprop)

    def derivative(self, by: str | None = None) -> Text:
        """The derivative of `mod` by "score" or by a captured name; None: all of them, as text for people."""
        return Text(self.core.derivative(by, indented=by is None))

    def check_bprop(self, seed: int = 1, points: int = 1000) -> tuple[float, str]:
        """(largest relative error of a hand-written `bprop` against the derived one at random points, where it is)."""
        return self.core.check_bprop(seed, points)

    def show(
        self,
        *,
        sq: int = 64,
        skv: int | None = None,
        score: float = 0.0,
        b: int = 0,
        h: int = 0,
        batch: int = 1,
        heads: int = 1,
        tensors: Mapping[str, Any] | None = None,
        scalars: Mapping[str, float] | None = None,
        tile: int | None = None,
    ) -> Picture:
        """A picture of one head: the modified `score` at each query (down) and key (across), grey if it
        is masked, and which tiles are empty, full or mixed under the mask (tile=None: about eight a side). matplotlib draws it:
        pip install 'fovea[plot]'."""
        from .picture import draw

        return draw(
            self,
            score=score,
            at=(b, h),
            sizes=(batch, heads, sq, skv or sq),
            tensors=tensors or {},
            scalars=scalars or {},
            tile=tile,
        )

    def _repr_png_(self) -> bytes | None:
        # A notebook calls this for every value that it shows. Without data for captured tensors there is nothing to draw.
        if self.tensors or any(default is None for _, _, default in self.scalars):
            return None
        return self.show()._repr_png_()

    def _repr_html_(self) -> str:
        from .picture import with_caption

        return with_caption(self._repr_png_(), self.core.text(indented=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.core == other.core

    def __hash__(self) -> int:
        # Equality ignores names, so the hash must, too: each name becomes its place in canonical order.
        if self._hash is None:
            places = {name: f"t{i}" for i, (name, *_) in enumerate(self.tensors)}
            places |= {name: f"s{i}" for i, (name, *_) in enumerate(self.scalars)}
            formulas = " ".join(text or "-" for text in (self.mod, self.mask, self.bprop))
            self._hash = hash(substitute(formulas, places))
        return self._hash

    def __repr__(self) -> str:
        return f"fovea.Program({self.text!r})"

    def __str__(self) -> str:
        return self.core.text(indented=True)

    def __reduce__(self) -> tuple:
        return Program, (self.core.text(in_double=True),)


def _texts(line: str) -> tuple[str | None, ...]:
    return tuple(_core.line_value(line, key) or None for key in ("mod", "mask", "bprop"))


def formula(
    text: str | None = None,
    *,
    mask: str | None = None,
    bprop: str | None = None,
    tensors: Mapping[str, str | tuple[str, Sequence]] | None = None,
    scalars: Mapping[str, object] | None = None,
) -> Program:
    """A program from texts.

    `text` is a formula of the score ("30 * tanh(score / 30)"), one of positions, which is a mask ("q >= k"),
    or a whole line (`mod="..." mask=causal tensor=slopes:f32[H]`). `tensors` declares what formulas capture,
    as "f32[H]" or ("f32", ("H",)); `scalars` by a default value (a float, or an int for i32) or by a type
    ("f32", "i32").

    >>> formula("cap * tanh(score / cap)", mask="causal", scalars={"cap": 30.0}).derivative("score")
    let t0 = tanh(score / cap); cap * (1.0 - t0 * t0) / cap
    """
    if text is not None and _LINE.match(text):
        if mask or bprop or tensors or scalars:
            raise _core.InvalidArgument("text is a whole line; give mask, bprop, tensors and scalars in it, not beside it")
        return Program(text)
    declared = [_declared_tensor(name, given) for name, given in (tensors or {}).items()]
    values = [_declared_scalar(name, given) for name, given in (scalars or {}).items()]
    try:
        return Program(program_line(text, mask, bprop, declared, values))
    except _core.InvalidArgument as error:
        alone = text is not None and mask is None and bprop is None
        with contextlib.suppress(_core.InvalidArgument):
            if alone:
                return Program(program_line(None, text, None, declared, values))
        raise _core.InvalidArgument(by_arguments(str(error))) from None  # of reading it as a formula of the score


def _declared_tensor(name: str, given: str | tuple[str, Sequence]) -> tuple[str, str, Sequence]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return name, *given
    found = isinstance(given, str) and re.fullmatch(r"\s*(\w+)\s*\[(.*)\]\s*", given)
    if not found:
        raise _core.InvalidArgument(f"tensors[{name!r}]={given!r}: must be like 'f32[H]' or 'i32[B, Sq]'")
    return name, found[1], [part.strip() for part in found[2].split(",") if part.strip()]


def _declared_scalar(name: str, given: object) -> tuple:
    if isinstance(given, str) and given in ("f32", "i32"):
        return name, given
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise _core.InvalidArgument(f"scalars[{name!r}]={given!r}: must be a number (its default), 'f32' or 'i32'")
    return (name, "i32", int(given)) if isinstance(given, numbers.Integral) else (name, "f32", float(given))


# --- modifiers of a call that are formulas, for every front end ---

Texts = tuple[str | None, str | None, str | None]
MODIFIERS = ("score_mod", "mask_mod", "score_mod_bprop")


def texts_of(name: str, modifier: str | Program, in_double: bool) -> Texts:
    """(mod, mask, bprop) of a formula text, or of a Program, which is given as the modifier of that name."""
    if isinstance(modifier, str):
        return tuple(modifier if name == other else None for other in MODIFIERS)  # type: ignore[return-value]
    mod, mask, bprop = modifier.texts(in_double)
    if name == "mask_mod" and (mod or not mask):
        raise _core.InvalidArgument("mask_mod: a fovea.Program here has a mask alone")
    if name == "score_mod_bprop" and not bprop:
        raise _core.InvalidArgument("score_mod_bprop: a fovea.Program here has a bprop")
    return (None, None, bprop) if name == "score_mod_bprop" else (mod, mask, bprop)


def combined(modifiers: Sequence[Any], read: Callable[[str, Any], Texts]) -> Texts:
    """(mod, mask, bprop) of score_mod, mask_mod and score_mod_bprop; `read` gives those of one that is not None."""
    found = [(None, None, None) if x is None else read(name, x) for name, x in zip(MODIFIERS, modifiers)]
    (mod, mask, own), (_, more, _), (_, _, bprop) = found
    if own and bprop:
        raise _core.InvalidArgument(
            "score_mod_bprop: given, but score_mod is a Program with a bprop of its own; give one of them"
        )
    return mod, both_masks(mask, more), own or bprop

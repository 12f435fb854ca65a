"""Scalars of a formula, and the text that they become.

A Term is one scalar: a leaf, a literal, or a name that a `let` gives. The Writer makes Terms, one `let` for each distinct
operation, so that a graph of n nodes is a text of n lines. Constants, and indices that cannot be negative, are folded here,
since array indexing in JAX emits a wrap for every index. Nothing here knows JAX; `_symbolic` does."""

from __future__ import annotations

import dataclasses
import math
import operator
import re

import numpy as np


@dataclasses.dataclass(frozen=True)
class Term:
    """A scalar: `text` is an atom of the language, `kind` is f32, i32 or bool."""

    text: str
    kind: str
    value: float | int | bool | None = None  # of a literal
    nonnegative: bool = False


def literal(value: float | int | bool, kind: str) -> Term:
    if kind == "bool":
        return Term("true" if value else "false", "bool", bool(value))
    if kind == "i32":
        number = int(value)
        if not -(2**31) <= number < 2**31:
            raise OverflowError(f"the integer {number} does not fit i32")
        return Term(str(number), "i32", number, number >= 0)
    number = float(np.float32(value))
    if math.isnan(number):
        return Term("nan", "f32", number)
    if math.isinf(number):
        return Term("inf" if number > 0 else "-inf", "f32", number)
    text = repr(float(value)) if isinstance(value, np.float64) else str(np.float32(value))
    return Term(text if any(c in text for c in ".e") else text + ".0", "f32", number)


TRUE, FALSE = literal(True, "bool"), literal(False, "bool")
LEAVES = {
    "score": Term("score", "f32"),
    "grad": Term("grad", "f32"),
    **{name: Term(name, "i32", nonnegative=True) for name in ("b", "h", "q", "k")},
}
_NAME = re.compile(r"[A-Za-z_]\w*")


class Writer:
    """Collects the lets of one formula."""

    def __init__(self, prefix: str = "t"):
        self._prefix = prefix
        self._lets: dict[str, str] = {}  # name -> text
        self._known: dict[str, Term] = {}  # text -> Term

    def let(self, text: str, kind: str, nonnegative: bool = False) -> Term:
        if text not in self._known:
            name = f"{self._prefix}{len(self._lets)}"
            self._lets[name] = text
            self._known[text] = Term(name, kind, None, nonnegative)
        return self._known[text]

    def formula(self, result: Term) -> str:
        """The text of `result` with the lets that it needs, in order."""
        needed, todo = set(), [result.text]
        while todo:
            for name in _NAME.findall(todo.pop()):
                if name in self._lets and name not in needed:
                    needed.add(name)
                    todo.append(self._lets[name])
        lets = [f"let {name} = {text}; " for name, text in self._lets.items() if name in needed]
        return "".join(lets) + result.text

    # --- operations that fold ---

    def add(self, x: Term, y: Term) -> Term:
        return self._folded("+", operator.add, 0, x, y)

    def mul(self, x: Term, y: Term) -> Term:
        return self._folded("*", operator.mul, 1, x, y)

    def _folded(self, sign: str, function, neutral: int, x: Term, y: Term) -> Term:
        if x.kind == "i32" and y.kind == "i32":
            if x.value is not None and y.value is not None:
                return literal(_wrap(function(x.value, y.value)), "i32")
            if neutral in (x.value, y.value):
                return y if x.value == neutral else x
        return self.let(f"{x.text} {sign} {y.text}", x.kind, x.nonnegative and y.nonnegative)

    def floor_divide(self, x: Term, y: Term) -> Term:
        if y.value == 1:
            return x
        if x.value is not None and y.value:
            return literal(x.value // y.value, "i32")
        return self.let(f"{x.text} // {y.text}", "i32", x.nonnegative and y.nonnegative)

    def modulo(self, x: Term, y: Term) -> Term:
        if x.value is not None and y.value:
            return literal(x.value % y.value, "i32")
        return self.let(f"{x.text} % {y.text}", "i32", y.value is not None and y.value > 0)

    def compare(self, sign: str, x: Term, y: Term) -> Term:
        if x.value is not None and y.value is not None and x.kind != "f32":
            return literal(_COMPARE[sign](x.value, y.value), "bool")
        if x.nonnegative and y.value == 0 and sign in ("<", ">="):
            return literal(sign == ">=", "bool")
        return self.let(f"{x.text} {sign} {y.text}", "bool")

    def select(self, condition: Term, x: Term, y: Term) -> Term:
        if condition.value is not None:
            return x if condition.value else y
        if x.text == y.text:
            return x
        return self.let(f"{condition.text} ? {x.text} : {y.text}", x.kind, x.nonnegative and y.nonnegative)

    def both(self, x: Term, y: Term) -> Term:
        if x.value is not None or y.value is not None:
            known, other = (x, y) if x.value is not None else (y, x)
            return other if known.value else FALSE
        return self.let(f"{x.text} && {y.text}", "bool")

    def clamp(self, x: Term, low: int, high: int) -> Term:
        """x clamped to low...high, which are constants."""
        if x.value is not None:
            return literal(min(max(x.value, low), high), "i32")
        return self.let(f"clamp({x.text}, {low}, {high})", "i32", low >= 0)

    def cast(self, x: Term, kind: str) -> Term:
        if x.kind == kind:
            return x
        if x.value is not None and x.kind != "f32" and kind in ("f32", "i32"):
            return literal(x.value, kind)
        return self.let(f"{kind}({x.text})", kind, x.nonnegative or x.kind == "bool")


_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}


def _wrap(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31

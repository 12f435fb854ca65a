"""One rule per elementwise primitive of JAX: Terms in, a Term out.

Floating point is f32 (f64 if q is) whatever the precision JAX would use, integers are i32: docs/jax.md says so. A primitive
without a rule here is refused by `_symbolic`, which names it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ._terms import Term, Writer, literal

Rule = Callable[..., Term]


class NoFormula(Exception):
    """A primitive, or a use of one, that a formula cannot express; the text says why."""


def _function(name: str) -> Rule:
    return lambda w, p, *x: w.let(f"{name}({', '.join(t.text for t in x)})", "f32")


def _compare(sign: str) -> Rule:
    return lambda w, p, x, y: w.compare(sign, x, y)


def _sub(w: Writer, p, x: Term, y: Term) -> Term:
    if y.kind == "i32" and y.value is not None and y.value != -(2**31):
        return w.add(x, literal(-y.value, "i32"))
    return w.let(f"{x.text} - {y.text}", x.kind)


def _div(w: Writer, p, x: Term, y: Term) -> Term:
    if x.kind == "i32":
        return w.let(f"div({x.text}, {y.text})", "i32", x.nonnegative and y.nonnegative)
    return w.let(f"{x.text} / {y.text}", "f32")


def _rem(w: Writer, p, x: Term, y: Term) -> Term:
    if x.kind != "i32":
        raise NoFormula("the remainder of floating-point numbers has no formula; write it with floor")
    return w.let(f"rem({x.text}, {y.text})", "i32", x.nonnegative)


def _sign(w: Writer, p, x: Term) -> Term:
    if x.kind == "f32":
        return w.let(f"sign({x.text})", "f32")
    below = w.select(w.compare("<", x, literal(0, "i32")), literal(-1, "i32"), literal(0, "i32"))
    return w.select(w.compare(">", x, literal(0, "i32")), literal(1, "i32"), below)


def _extreme(name: str) -> Rule:
    def rule(w: Writer, p, x: Term, y: Term) -> Term:
        if x.kind == "bool":
            return w.let(f"{x.text} {'||' if name == 'max' else '&&'} {y.text}", "bool")
        return w.let(f"{name}({x.text}, {y.text})", x.kind, x.nonnegative and y.nonnegative)

    return rule


def _logic(on_bool: str, on_integer: str) -> Rule:
    def rule(w: Writer, p, x: Term, y: Term) -> Term:
        if x.kind == "bool":
            return w.both(x, y) if on_bool == "&&" else w.let(f"{x.text} {on_bool} {y.text}", "bool")
        return w.let(f"{x.text} {on_integer} {y.text}", "i32")

    return rule


def _select_n(w: Writer, p, which: Term, *cases: Term) -> Term:
    if which.kind == "bool":
        return w.select(which, cases[1], cases[0])
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        result = w.select(w.compare("<=", which, literal(i, "i32")), cases[i], result)
    return result


def _integer_pow(w: Writer, p, x: Term) -> Term:
    y = p["y"]
    if x.kind != "f32" and not 0 <= y <= 32:
        raise NoFormula(f"an integer to the power {y} has no formula")
    if abs(y) > 32:
        return w.let(f"pow({x.text}, {literal(y, 'f32').text})", "f32")
    result = _power(w, x, abs(y))
    return result if y >= 0 else w.let(f"1.0 / {result.text}", "f32")


def _power(w: Writer, x: Term, y: int) -> Term:
    """By repeated products, as XLA does: cheaper than pow(), and right for negative bases in every engine."""
    if y == 0:
        return literal(1, x.kind)
    if y % 2:
        return x if y == 1 else w.mul(_power(w, x, y - 1), x)
    half = _power(w, x, y // 2)
    return w.mul(half, half)


def _pow(w: Writer, p, x: Term, y: Term) -> Term:
    if x.kind != "f32":
        raise NoFormula("integers to a power that is not known have no formula; cast to float first")
    return w.let(f"pow({x.text}, {w.cast(y, 'f32').text})", "f32")


def _round(w: Writer, p, x: Term) -> Term:
    if int(p["rounding_method"]) == 1:  # to even
        return w.let(f"round({x.text})", "f32")
    up = w.let(f"abs({x.text}) + 0.5", "f32")
    return w.let(f"sign({x.text}) * floor({up.text})", "f32")


def _shift_right_logical(w: Writer, p, x: Term, n: Term) -> Term:
    # Ones at the places that bits of x can have after the shift. Shifted twice, since a shift by 32 is one by 0.
    ones = w.let(f"(1 << 31 - {n.text} << 1) - 1", "i32")
    return w.let(f"({x.text} >> {n.text}) & {ones.text}", "i32")


def _neg(w: Writer, p, x: Term) -> Term:
    if x.value is not None and x.kind == "i32":
        return literal(-x.value, "i32")
    return w.let(f"-{x.text}" if x.text[0] != "-" else f"-({x.text})", x.kind)


# fmt: off
RULES: dict[str, Rule] = {
    "add": lambda w, p, x, y: w.add(x, y), "add_any": lambda w, p, x, y: w.add(x, y), "sub": _sub,
    "mul": lambda w, p, x, y: w.mul(x, y), "div": _div, "rem": _rem, "neg": _neg,
    "abs": lambda w, p, x: w.let(f"abs({x.text})", x.kind), "sign": _sign,
    "max": _extreme("max"), "min": _extreme("min"),
    "clamp": lambda w, p, low, x, high: w.let(f"clamp({x.text}, {low.text}, {high.text})", x.kind, low.nonnegative),
    **{name: _function(name) for name in ("exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt")},
    **{name: _function(name) for name in ("tanh", "erf", "sin", "cos", "tan", "floor", "ceil")},
    "logistic": _function("sigmoid"), "erfc": lambda w, p, x: w.let(f"1.0 - erf({x.text})", "f32"),
    "square": lambda w, p, x: w.mul(x, x), "integer_pow": _integer_pow, "pow": _pow, "round": _round,
    "lt": _compare("<"), "le": _compare("<="), "gt": _compare(">"), "ge": _compare(">="),
    "eq": _compare("=="), "ne": _compare("!="),
    "and": _logic("&&", "&"), "or": _logic("||", "|"), "xor": _logic("!=", "^"),
    "not": lambda w, p, x: w.let(f"{'!' if x.kind == 'bool' else '~'}{x.text}", x.kind),
    "is_finite": lambda w, p, x: w.let(f"abs({x.text}) < inf", "bool"),
    "shift_left": lambda w, p, x, n: w.let(f"{x.text} << {n.text}", "i32"),
    "shift_right_arithmetic": lambda w, p, x, n: w.let(f"{x.text} >> {n.text}", "i32"),
    "shift_right_logical": _shift_right_logical, "select_n": _select_n,
    "convert_element_type": lambda w, p, x: w.cast(x, kind_of(p["new_dtype"], "a cast")),
    **{name: lambda w, p, x: x for name in ("reduce_precision", "copy", "copy_p", "pvary")},
}
# fmt: on

# name of a reduction -> (the elementwise rule it folds with, its start for each kind)
REDUCTIONS = {
    "reduce_sum": ("add", {"f32": 0.0, "i32": 0}),
    "reduce_prod": ("mul", {"f32": 1.0, "i32": 1}),
    "reduce_max": ("max", {"f32": -np.inf, "i32": -(2**31)}),
    "reduce_min": ("min", {"f32": np.inf, "i32": 2**31 - 1}),
    "reduce_and": ("and", {"bool": True, "i32": -1}),
    "reduce_or": ("or", {"bool": False, "i32": 0}),
}


def kind_of(dtype, what: str) -> str:
    """f32, i32 or bool for a type of JAX that a formula can stand for."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return "bool"
    if dtype.name in ("float32", "float16", "bfloat16", "float64"):
        return "f32"
    if dtype.name in ("int32", "int64"):
        return "i32"
    raise NoFormula(f"{what} has the type {dtype.name}; formulas have float32, int32 and bool")

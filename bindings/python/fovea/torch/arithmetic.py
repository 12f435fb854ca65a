"""Operators of traced values with torch's meaning: its type promotion, its rounding of integer division, its bools.
Importing this file gives traced values these operators; functions.py uses the same definitions."""

from .errors import refuse
from .values import BOOL, FLOAT, INT, Value, cast, common, lift, literal, number, real, truth
from .vectors import TRACED, Vector, apply


def pair(trace, a, b):
    """Both as symbols of the type that torch promotes them to. A Python int beside a float is a float literal."""
    if isinstance(a, Value):
        if a.kind == FLOAT and type(b) is int:
            return a, literal(trace, float(b))
    elif type(a) is int and isinstance(b, Value) and b.kind == FLOAT:
        return literal(trace, float(a)), b
    return common(lift(trace, a), lift(trace, b))


def numbers(trace, a, b):
    """The same, with bools as integers."""
    a, b = pair(trace, a, b)
    return number(a), number(b)


def add(trace, a, b, alpha=1):
    a, b = pair(trace, a, b if isinstance(alpha, int) and alpha == 1 else mul(trace, b, alpha))
    if a.kind == BOOL:
        return trace.emit(f"{a.text} || {b.text}", BOOL)
    return trace.emit(f"{a.text} + {b.text}", a.kind, a.nonnegative and b.nonnegative)


def sub(trace, a, b, alpha=1):
    a, b = pair(trace, a, b if isinstance(alpha, int) and alpha == 1 else mul(trace, b, alpha))
    if a.kind == BOOL:
        raise refuse("the difference of two bools", "a ^ b, or a.to(torch.int32) - b.to(torch.int32)")
    return trace.emit(f"{a.text} - {b.text}", a.kind)


def mul(trace, a, b):
    a, b = pair(trace, a, b)
    if a.kind == BOOL:
        return trace.emit(f"{a.text} && {b.text}", BOOL)
    return trace.emit(f"{a.text} * {b.text}", a.kind, a.nonnegative and b.nonnegative)


def div(trace, a, b, rounding_mode=None):
    if rounding_mode == "floor":
        return floordiv(trace, a, b)
    a, b = pair(trace, a, b)
    if rounding_mode == "trunc":
        a, b = number(a), number(b)
        if a.kind == INT:
            return trace.emit(f"div({a.text}, {b.text})", INT, a.nonnegative and b.nonnegative)
        return truncate(trace.emit(f"{a.text} / {b.text}", FLOAT))
    if rounding_mode is not None:
        raise refuse(f"rounding_mode={rounding_mode!r}", "'floor', 'trunc' or None")
    return trace.emit(f"{real(a).text} / {real(b).text}", FLOAT)


def floordiv(trace, a, b):
    a, b = numbers(trace, a, b)
    if a.kind == INT:
        return trace.emit(f"{a.text} // {b.text}", INT, a.nonnegative and b.nonnegative)
    return trace.emit(f"floor({a.text} / {b.text})", FLOAT)


def mod(trace, a, b):
    """The remainder with the sign of b, as Python's % and torch.remainder."""
    a, b = numbers(trace, a, b)
    if a.kind == INT:
        return trace.emit(f"{a.text} % {b.text}", INT, b.nonnegative)
    return trace.emit(f"{a.text} - {b.text} * floor({a.text} / {b.text})", FLOAT)


def fmod(trace, a, b):
    """The remainder with the sign of a."""
    a, b = numbers(trace, a, b)
    if a.kind == INT:
        return trace.emit(f"rem({a.text}, {b.text})", INT, a.nonnegative)
    whole = truncate(trace.emit(f"{a.text} / {b.text}", FLOAT))
    return trace.emit(f"{a.text} - {b.text} * {whole.text}", FLOAT)


def truncate(v):
    if v.kind != FLOAT:
        return v
    return v.trace.emit(f"{v.text} < 0.0 ? ceil({v.text}) : floor({v.text})", FLOAT)


def power(trace, base, exponent):
    a, b = lift(trace, base), lift(trace, exponent)
    if FLOAT in (a.kind, b.kind):
        return trace.emit(f"pow({real(a).text}, {real(b).text})", FLOAT)
    a, b = number(a), number(b)
    if isinstance(exponent, int) and 0 <= exponent <= 16:
        text = " * ".join([a.text] * exponent) or "1"
        return trace.emit(text, INT, a.nonnegative or exponent % 2 == 0)
    if isinstance(base, int) and base == 2 and b.nonnegative:
        return trace.emit(f"1 << {b.text}", INT)
    raise refuse("an integer to an integer power", "a float base (2.0 ** x), or the product written out")


def bitwise(symbol, on_bools):
    def apply(trace, a, b):
        a, b = pair(trace, a, b)
        if a.kind == FLOAT:
            raise refuse(f"{symbol} of floats", "comparisons first: (x > 0) " + symbol + " (y > 0)")
        if a.kind == BOOL:
            return trace.emit(f"{a.text} {on_bools} {b.text}", BOOL)
        known = (a.nonnegative, b.nonnegative)
        return trace.emit(f"{a.text} {symbol} {b.text}", INT, any(known) if symbol == "&" else all(known))

    return apply


def shift(symbol):
    def apply(trace, a, b):
        a, b = number(lift(trace, a)), number(lift(trace, b))
        if FLOAT in (a.kind, b.kind):
            raise refuse(f"{symbol} of floats", "x * 2.0 ** n")
        return trace.emit(f"{a.text} {symbol} {b.text}", INT, a.nonnegative and symbol == ">>")

    return apply


def compare(symbol):
    def apply(trace, a, b):
        a, b = pair(trace, a, b)
        if a.kind == BOOL and symbol not in ("==", "!="):
            a, b = number(a), number(b)
        return trace.emit(f"{a.text} {symbol} {b.text}", BOOL)

    return apply


def logical(symbol):
    def apply(trace, a, b):
        return trace.emit(f"{truth(lift(trace, a)).text} {symbol} {truth(lift(trace, b)).text}", BOOL)

    return apply


def where(trace, condition, a, b):
    c = lift(trace, condition)
    a, b = pair(trace, a, b)
    return trace.emit(f"{cast(c, BOOL).text} ? {a.text} : {b.text}", a.kind, a.nonnegative and b.nonnegative)


AND, OR, XOR = bitwise("&", "&&"), bitwise("|", "||"), bitwise("^", "!=")
LSHIFT, RSHIFT = shift("<<"), shift(">>")
LT, LE, GT, GE, EQ, NE = (compare(symbol) for symbol in ("<", "<=", ">", ">=", "==", "!="))

# fmt: off
_OPERATORS = {
    "add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floordiv, "mod": mod, "pow": power, "and": AND, "or": OR,
    "xor": XOR, "lshift": LSHIFT, "rshift": RSHIFT,
}
# fmt: on


def _forward(rule):
    def operator(self, other):
        if isinstance(other, (Value, int, float)) and isinstance(self, Value):
            return rule(self.trace, self, other)
        return apply(rule, self.trace, (self, other), {})

    return operator


def _reverse(rule):
    def operator(self, other):
        return apply(rule, self.trace, (other, self), {})

    return operator


def _install():
    for kind in TRACED:
        for name, rule in _OPERATORS.items():
            setattr(kind, f"__{name}__", _forward(rule))
            setattr(kind, f"__r{name}__", _reverse(rule))
        for name, rule in (("lt", LT), ("le", LE), ("gt", GT), ("ge", GE), ("eq", EQ), ("ne", NE)):
            setattr(kind, f"__{name}__", _forward(rule))
    for name in ("neg", "pos", "abs", "invert"):
        setattr(Vector, f"__{name}__", _each(getattr(Value, f"__{name}__")))


def _each(operator):
    return lambda self: Vector(self.trace, [operator(item) for item in self.items])


_install()

"""What a callback computes: a small graph of operations with their types, and its text in the formula language."""

from __future__ import annotations

import math
import struct

from .._core import InvalidArgument

F32, I32, BOOL = "f32", "i32", "bool"


class Expression:
    """One operation: `template` with {0}, {1} ... for its arguments. Without arguments it is a leaf, which is its text."""

    __slots__ = ("template", "arguments", "type")

    def __init__(self, template: str, arguments: tuple[Expression, ...] = (), type: str = F32) -> None:
        self.template = template
        self.arguments = arguments
        self.type = type


def literal(value: float | int | bool) -> Expression:
    """A number as it is; floats are rounded to f32 by the library."""
    if isinstance(value, bool):
        return Expression("true" if value else "false", (), BOOL)
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise InvalidArgument(f"the integer {value} does not fit 32 bits")
        return Expression(str(value), (), I32)
    if math.isnan(value):
        return Expression("nan")
    if math.isinf(value):
        return Expression("inf" if value > 0 else "-inf")
    try:
        rounded = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return Expression("inf" if value > 0 else "-inf")  # its value rounded to f32
    return Expression(repr(value) if rounded else repr(math.copysign(0.0, value)))


def as_f32(x: Expression) -> Expression:
    return x if x.type == F32 else Expression("f32({0})", (x,), F32)


def as_i32(x: Expression) -> Expression:
    return x if x.type == I32 else Expression("i32({0})", (x,), I32)


def as_bool(x: Expression) -> Expression:
    return x if x.type == BOOL else Expression("({0} != 0)", (x,), BOOL)


def as_number(x: Expression) -> Expression:
    """A bool counts as 1 or 0."""
    return as_f32(x) if x.type == BOOL else x


def formula_text(root: Expression) -> str:
    """The text of an expression: a `let` for each operation that is used more than once or nested deeply."""
    order = _in_order(root)
    uses: dict[int, int] = {}
    for expression in order:
        for i, argument in enumerate(expression.arguments):
            uses[id(argument)] = uses.get(id(argument), 0) + expression.template.count(f"{{{i}}}")
    text: dict[int, str] = {}
    depth: dict[int, int] = {}
    lets: list[str] = []
    for expression in order:
        written = expression.template.format(*(text[id(argument)] for argument in expression.arguments))
        deep = 1 + max((depth[id(argument)] for argument in expression.arguments), default=0)
        shared = uses.get(id(expression), 0) > 1 and expression.arguments
        # The parser allows 200 levels of nesting; a long chain gets a `let` well before.
        if (shared or deep > 24) and expression is not root:
            lets.append(f"let v{len(lets)} = {written}; ")
            written, deep = f"v{len(lets) - 1}", 1
        text[id(expression)], depth[id(expression)] = written, deep
    return "".join(lets) + text[id(root)]


def _in_order(root: Expression) -> list[Expression]:
    """Every expression once, arguments first. Not recursive, since chains may have thousands of operations."""
    order: list[Expression] = []
    done: set[int] = set()
    stack = [(root, False)]
    while stack:
        expression, ready = stack.pop()
        if id(expression) in done:
            continue
        if ready:
            done.add(id(expression))
            order.append(expression)
            continue
        stack.append((expression, True))
        stack.extend((argument, False) for argument in reversed(expression.arguments))
    return order


def reachable(roots: list[Expression]) -> set[int]:
    """The ids of these expressions and of all their arguments."""
    return {id(expression) for root in roots for expression in _in_order(root)}

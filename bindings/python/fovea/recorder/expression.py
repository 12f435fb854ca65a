"""What a callback computes: a small graph of operations with their types, and its text in the formula language; and cudnn's
pointwise operations without options, one line each."""

from __future__ import annotations

from collections.abc import Callable

from .._core import InvalidArgument
from .._request import float_text

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
    return Expression(float_text(value))


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


# --- operations with one or two inputs ---

# compute: f32, i32, or None if compute_data_type is not given.
Rule = Callable[..., Expression]


def _common(*values: Expression) -> tuple[str, tuple[Expression, ...]]:
    numbers = tuple(as_number(value) for value in values)
    return (I32 if all(number.type == I32 for number in numbers) else F32), numbers


def arithmetic(template: str) -> Rule:
    """Positions stay whole numbers: sums and differences of them are exact in i32, and masks of such are
    skipped tile by tile."""

    def rule(a: Expression, b: Expression, compute: str | None) -> Expression:
        type, operands = _common(a, b)
        return Expression(template, operands, type)

    return rule


def multiply(a: Expression, b: Expression, compute: str | None) -> Expression:
    type, operands = _common(a, b)
    if type == I32 and compute != I32:  # as floats: a product of positions may leave 32 bits
        operands, type = tuple(map(as_f32, operands)), F32
    return Expression("({0} * {1})", operands, type)


def divide(a: Expression, b: Expression, compute: str | None) -> Expression:
    type, operands = _common(a, b)
    if type == I32 and compute == I32:
        return Expression("div({0}, {1})", operands, I32)
    return Expression("({0} / {1})", operands, F32)


def modulo(a: Expression, b: Expression, compute: str | None) -> Expression:
    """The remainder of a division towards zero, as C's fmod."""
    type, operands = _common(a, b)
    if type == I32:
        return Expression("rem({0}, {1})", operands, I32)
    x, y = map(as_f32, operands)
    ratio = Expression("({0} / {1})", (x, y))
    whole = Expression("({0} < 0 ? ceil({0}) : floor({0}))", (ratio,))
    return Expression("({0} - {1} * {2})", (x, y, whole))


def floats(template: str) -> Rule:
    """An operation of floats, whatever its operands are."""

    def rule(*values: Expression, compute: str | None = None) -> Expression:
        return Expression(template, tuple(map(as_number, values)), F32)

    return rule


def keeps_type(template: str) -> Rule:
    def rule(x: Expression, compute: str | None = None) -> Expression:
        x = as_number(x)
        return Expression(template, (x,), x.type)

    return rule


def compare(operator: str) -> Rule:
    def rule(a: Expression, b: Expression, compute: str | None) -> Expression:
        if a.type != b.type or operator not in ("==", "!="):
            a, b = as_number(a), as_number(b)
        return Expression(f"({{0}} {operator} {{1}})", (a, b), BOOL)

    return rule


def logic(template: str) -> Rule:
    def rule(*values: Expression, compute: str | None = None) -> Expression:
        return Expression(template, tuple(map(as_bool, values)), BOOL)

    return rule


def select(x: Expression, y: Expression, mask: Expression, compute: str | None) -> Expression:
    if x.type != y.type:
        x, y = as_number(x), as_number(y)
    type = x.type if x.type == y.type else F32
    return Expression("({2} ? {0} : {1})", (x, y, as_bool(mask)), type)


def _gelu_tanh_gradient(loss: Expression, x: Expression) -> Expression:
    u = Expression("tanh(0.7978845608028654 * ({0} + 0.044715 * {0} * {0} * {0}))", (x,))
    inner = Expression("(0.7978845608028654 * (1.0 + 0.134145 * {0} * {0}))", (x,))
    return Expression("({0} * (0.5 * (1.0 + {1}) + 0.5 * {2} * (1.0 - {1} * {1}) * {3}))", (loss, u, x, inner))


def converted(x: Expression, compute: str | None) -> Expression:
    """identity: a conversion, if a type is given."""
    if compute is None:
        return x
    return {F32: as_f32, I32: as_i32, BOOL: as_bool}[compute](x)


UNARY: dict[str, Rule] = {
    **{name: floats(f"{name}({{0}})") for name in ("tanh", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "erf")},
    **{name: floats(f"{name}({{0}})") for name in ("ceil", "floor", "sigmoid", "softplus")},
    "abs": keeps_type("abs({0})"),
    "neg": keeps_type("(-{0})"),
    "reciprocal": floats("(1.0 / {0})"),
    "elu": floats("({0} > 0 ? {0} : expm1({0}))"),
    "gelu": floats("(0.5 * {0} * (1.0 + erf({0} * 0.7071067811865476)))"),
    "gelu_approx_tanh": floats("(0.5 * {0} * (1.0 + tanh(0.7978845608028654 * ({0} + 0.044715 * {0} * {0} * {0}))))"),
    "logical_not": logic("(!{0})"),
    "identity": converted,
}

# With the names of the two inputs.
BINARY: dict[str, tuple[str, str, Rule]] = {
    "add": ("a", "b", arithmetic("({0} + {1})")),
    "sub": ("a", "b", arithmetic("({0} - {1})")),
    "mul": ("a", "b", multiply),
    "div": ("a", "b", divide),
    "bias": ("input", "bias", arithmetic("({0} + {1})")),
    "scale": ("input", "scale", multiply),
    "add_square": ("a", "b", floats("({0} + {1} * {1})")),
    "min": ("input0", "input1", arithmetic("min({0}, {1})")),
    "max": ("input0", "input1", arithmetic("max({0}, {1})")),
    "mod": ("input0", "input1", modulo),
    "pow": ("input0", "input1", floats("pow({0}, {1})")),
    "cmp_eq": ("input", "comparison", compare("==")),
    "cmp_neq": ("input", "comparison", compare("!=")),
    "cmp_gt": ("input", "comparison", compare(">")),
    "cmp_ge": ("input", "comparison", compare(">=")),
    "cmp_lt": ("input", "comparison", compare("<")),
    "cmp_le": ("input", "comparison", compare("<=")),
    "logical_and": ("a", "b", logic("({0} && {1})")),
    "logical_or": ("a", "b", logic("({0} || {1})")),
    # Gradients of activations: `loss` arrives, `input` is what the forward was given.
    "tanh_backward": ("loss", "input", floats("({0} * (1.0 - tanh({1}) * tanh({1})))")),
    "sigmoid_backward": ("loss", "input", floats("({0} * sigmoid({1}) * (1.0 - sigmoid({1})))")),
    "softplus_backward": ("loss", "input", floats("({0} * sigmoid({1}))")),
    "elu_backward": ("loss", "input", floats("({1} > 0 ? {0} : {0} * exp({1}))")),
    "gelu_backward": (
        "loss",
        "input",
        floats("({0} * (0.5 * (1.0 + erf({1} * 0.7071067811865476)) + {1} * 0.3989422804014327 * exp(-0.5 * {1} * {1})))"),
    ),
    "gelu_approx_tanh_backward": (
        "loss",
        "input",
        lambda loss, x, compute: _gelu_tanh_gradient(as_f32(as_number(loss)), as_f32(as_number(x))),
    ),
}

"""The graph that a callback runs on: cudnn's pygraph, as far as modifiers may use it."""

from __future__ import annotations

from typing import Any

from .._core import InvalidArgument
from .expression import BINARY, I32, UNARY, Expression, as_f32, as_number, literal, select
from .tensor import Capture, Tensor, _NoSuchMethod, capture, meaning_of

_AXES = ("b", "h", "q", "k")


class Graph:
    """Records the operations of a callback. Methods and their arguments are named as in cudnn's Python frontend."""

    def __init__(self, sizes: tuple[int, int, int, int] | None = None) -> None:
        self._sizes = sizes
        self._taken: set[str] = set()
        self._captures: list[tuple[Capture, Expression]] = []
        self._known: dict[str, Any] = {}  # what graph.tensor(name=...) may mean

    # --- tensors ---

    def _leaf(self, text: str) -> Tensor:
        return Tensor(self, Expression(text), name=text, dim=list(self._sizes) if self._sizes else None)

    def _capture(self, key: str, tensor: Any) -> Tensor:
        for known, load in self._captures:
            if known.tensor is tensor:
                break
        else:
            known, load = capture(key, tensor, self._taken, self._sizes)
            self._captures.append((known, load))
        return Tensor(self, load, name=key, dim=[int(extent) for extent in tensor.shape])

    def tensor(
        self,
        dim: Any = None,
        stride: Any = None,
        data_type: Any = None,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: Any = None,
        reordering_type: Any = None,
        name: str = "",
        uid: int = -1,
    ) -> Tensor:
        """The captured tensor of that name: a graph that is only recorded has no other way to learn its data."""
        if ragged_offset is not None or reordering_type is not None:
            raise InvalidArgument("graph.tensor: ragged_offset and reordering_type are not there in a modifier")
        if name not in self._known:
            there = ", ".join(map(repr, self._known)) or "none"
            raise InvalidArgument(
                f"graph.tensor(name={name!r}) has no data; pass it as score_mod_tensors[{name!r}] (there are: {there})"
            )
        return self._capture(name, self._known[name])

    def tensor_like(self, tensor: Any, name: str = "") -> Tensor:
        """A captured tensor: the framework's tensor that is given or, for one of the graph, the one of that name."""
        if isinstance(tensor, Tensor):
            return self.tensor(name=name or tensor.get_name())
        return self._capture(name or "tensor", tensor)

    def tensor_scalar(self, value: float, scalar_type: Any = None) -> Tensor:
        """A number."""
        return Tensor(self, literal(value), dim=[1, 1, 1, 1])

    def _value(self, method: str, argument: str, given: Any) -> Expression:
        if isinstance(given, Tensor):
            if given._graph is not self:
                raise InvalidArgument(
                    f"graph.{method}: {argument} was made in another recording; a callback may keep tensors from its forward "
                    "to its backward, not from one call to the next"
                )
            return given._expression
        if isinstance(given, (bool, int, float)):
            return literal(given)
        if hasattr(given, "shape") and hasattr(given, "dtype"):
            return self._capture(argument, given)._expression
        raise InvalidArgument(f"graph.{method}: {argument} must be a tensor of this graph, got {type(given).__name__}")

    def _made(self, expression: Expression, name: str) -> Tensor:
        return Tensor(self, expression, name=name)

    # --- operations with options; those without are at the end of this file ---

    def gen_index(self, input: Any, axis: int, compute_data_type: Any = None, name: str = "") -> Tensor:
        """The position along an axis of the score: 0 batch, 1 head, 2 query, 3 key."""
        self._value("gen_index", "input", input)
        if axis not in range(-4, 4):
            raise InvalidArgument(
                f"graph.gen_index: axis is {axis!r}; the score has the axes 0 to 3 (batch, head, query, key)"
            )
        meaning_of(compute_data_type, "compute_data_type")
        return self._made(Expression(_AXES[axis], (), I32), name)

    def binary_select(self, input0: Any, input1: Any, mask: Any, compute_data_type: Any = None, name: str = "") -> Tensor:
        """input0 if mask holds, else input1."""
        x, y = self._value("binary_select", "input0", input0), self._value("binary_select", "input1", input1)
        condition = self._value("binary_select", "mask", mask)
        compute = meaning_of(compute_data_type, "compute_data_type")
        return self._made(select(x, y, condition, compute), name)

    def _numbers(self, method: str, compute: Any, **given: Any) -> list[Expression]:
        """The arguments of an activation as floats."""
        meaning_of(compute, "compute_data_type")
        return [as_f32(as_number(self._value(method, name, value))) for name, value in given.items()]

    def relu(
        self,
        input: Any,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """x clipped to the bounds; below the lower one with the negative slope."""
        (x,) = self._numbers("relu", compute_data_type, input=input)
        low, slope = literal(float(lower_clip or 0)), float(negative_slope or 0)
        above = x if upper_clip is None else Expression("({0} < {1} ? {0} : {1})", (x, literal(float(upper_clip))))
        below = Expression("({0} + {1} * ({2} - {0}))", (low, literal(slope), x)) if slope else low
        return self._made(Expression("({0} > {1} ? {2} : {3})", (x, low, above, below)), name)

    def relu_backward(
        self,
        loss: Any,
        input: Any,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """The gradient of relu."""
        g, x = self._numbers("relu_backward", compute_data_type, loss=loss, input=input)
        low, slope, zero = literal(float(lower_clip or 0)), float(negative_slope or 0), literal(0.0)
        above = g
        if upper_clip is not None:
            above = Expression("({0} < {1} ? {2} : {3})", (x, literal(float(upper_clip)), g, zero))
        below = Expression("({0} * {1})", (g, literal(slope))) if slope else zero
        return self._made(Expression("({0} > {1} ? {2} : {3})", (x, low, above, below)), name)

    def leaky_relu(self, input: Any, negative_slope: float, compute_data_type: Any = None, name: str = "") -> Tensor:
        """x, or negative_slope * x below 0."""
        return self.relu(input, negative_slope, None, None, compute_data_type, name)

    def leaky_relu_backward(
        self, loss: Any, input: Any, negative_slope: float, compute_data_type: Any = None, name: str = ""
    ) -> Tensor:
        """The gradient of leaky_relu."""
        return self.relu_backward(loss, input, negative_slope, None, None, compute_data_type, name)

    def swish(self, input: Any, swish_beta: float | None = None, compute_data_type: Any = None, name: str = "") -> Tensor:
        """x * sigmoid(beta * x)."""
        (x,) = self._numbers("swish", compute_data_type, input=input)
        beta = literal(1.0 if swish_beta is None else float(swish_beta))
        return self._made(Expression("({0} * sigmoid({1} * {0}))", (x, beta)), name)

    def swish_backward(
        self, loss: Any, input: Any, compute_data_type: Any = None, swish_beta: float | None = None, name: str = ""
    ) -> Tensor:
        """The gradient of swish."""
        g, x = self._numbers("swish_backward", compute_data_type, loss=loss, input=input)
        beta = literal(1.0 if swish_beta is None else float(swish_beta))
        gate = Expression("sigmoid({1} * {0})", (x, beta))
        return self._made(Expression("({0} * {1} * (1.0 + {2} * {3} * (1.0 - {1})))", (g, gate, beta, x)), name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _NoSuchMethod(f"graph.{name} is not there for a modifier; there are: {', '.join(methods())}")


def _unary_method(name: str) -> Any:
    def method(self: Graph, input: Any, compute_data_type: Any = None, name: str = "") -> Tensor:
        value = self._value(operation, "input", input)
        return self._made(UNARY[operation](value, compute=meaning_of(compute_data_type, "compute_data_type")), name)

    operation = name
    method.__name__ = name
    method.__doc__ = f"cudnn's {name}."
    return method


def _binary_method(name: str) -> Any:
    first, second, rule = BINARY[name]
    operation = name

    def method(self: Graph, *positional: Any, compute_data_type: Any = None, name: str = "", **named: Any) -> Tensor:
        given = dict(zip((first, second), positional)) | named
        if len(positional) > 2 or set(given) != {first, second} or len(given) != len(positional) + len(named):
            raise InvalidArgument(f"graph.{operation} takes {first} and {second} (and compute_data_type, name)")
        a, b = (self._value(operation, argument, given[argument]) for argument in (first, second))
        return self._made(rule(a, b, compute=meaning_of(compute_data_type, "compute_data_type")), name)

    method.__name__ = name
    method.__doc__ = f"cudnn's {name}({first}, {second})."
    return method


for _name in UNARY:
    setattr(Graph, _name, _unary_method(_name))
for _name in BINARY:
    setattr(Graph, _name, _binary_method(_name))


def methods() -> list[str]:
    """The names that a callback may use."""
    return sorted(name for name in vars(Graph) if not name.startswith("_"))

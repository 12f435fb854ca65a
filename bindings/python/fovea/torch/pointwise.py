"""torch's pointwise functions in terms of the formula language: one rule each, a function of (trace, arguments)."""

import math

import torch

from . import arithmetic as ar
from .errors import refuse
from .values import BOOL, FLOAT, INT, Value, cast, lift, number, real

LN2 = math.log(2.0)


def emit(v: Value, text: str) -> Value:
    return v.trace.emit(text, FLOAT)


def plain(name):
    """A function of f32 that the language has under this name."""

    def apply(trace, x):
        v = lift(trace, x)
        return emit(v, f"{name}({(real(v) if v.kind == BOOL else v).text})")

    return apply


def rounding(name):
    def apply(trace, x, decimals=0):
        v = lift(trace, x)
        if decimals:
            raise refuse("round with decimals", "torch.round(x * 10**n) / 10**n")
        return emit(v, f"{name}({v.text})") if v.kind == FLOAT else v

    return apply


def expression(pattern):
    """A function of one f32, {x}, as an expression."""

    def apply(trace, x):
        v = real(lift(trace, x))
        return emit(v, pattern.format(x=v.text))

    return apply


def activation(pattern, **defaults):
    """The same with parameters, numbers or traced values, in the order in which torch has them, and perhaps `inplace`."""

    def apply(trace, x, *given, inplace=False, **named):
        v = real(lift(trace, x))
        parameters = {**defaults, **dict(zip(defaults, given)), **named}
        texts = {name: real(lift(trace, value)).text for name, value in parameters.items()}
        return emit(v, pattern.format(x=v.text, **texts))

    return apply


def question(pattern):
    """A predicate of one f32; of other types it is constant."""

    def apply(trace, x):
        v = lift(trace, x)
        if v.kind != FLOAT:
            sign = f"{number(v).text} < 0" if pattern == NEGATIVE else "false"
            return trace.emit("true" if pattern == FINITE else sign, BOOL)
        return trace.emit(pattern.format(x=v.text), BOOL)

    return apply


FINITE = "abs({x}) < inf"
NEGATIVE = "{x} < 0.0 || ({x} == 0.0 && 1.0 / {x} < 0.0)"


def absolute(trace, x):
    return abs(lift(trace, x))


def sign(trace, x):
    v = number(lift(trace, x))
    return cast(emit(v, f"sign({v.text})"), v.kind)


def choose(name):
    def apply(trace, a, b=None, dim=None, keepdim=False, **other):
        b = other.pop("other", b)
        if b is None or dim is not None or isinstance(b, (list, tuple)):
            raise refuse(f"torch.{name} over a dimension", f"torch.{name}imum(a, b) of two values")
        a, b = ar.numbers(trace, a, b)
        known = (a.nonnegative, b.nonnegative)
        return trace.emit(f"{name}({a.text}, {b.text})", a.kind, any(known) if name == "max" else all(known))

    return apply


MIN, MAX = choose("min"), choose("max")


def ignoring_nan(rule):
    def apply(trace, a, b):
        a, b = ar.pair(trace, a, b)
        best = rule(trace, a, b)
        if best.kind != FLOAT:
            return best
        return emit(best, f"{a.text} != {a.text} ? {b.text} : {b.text} != {b.text} ? {a.text} : {best.text}")

    return apply


def clamp(trace, x, min=None, max=None):
    v = number(lift(trace, x))
    if min is not None:
        v = MAX(trace, v, min)
    return v if max is None else MIN(trace, v, max)


def softplus(trace, x, beta=1.0, threshold=20.0):
    v = real(lift(trace, x))
    if beta == 1 and threshold == 20:
        return emit(v, f"softplus({v.text})")
    scaled = v * float(beta)
    return ar.where(trace, scaled > float(threshold), v, emit(v, f"softplus({scaled.text})") / float(beta))


def gelu(trace, x, approximate="none"):
    v = real(lift(trace, x))
    if approximate == "tanh":
        inner = (v + v * v * v * 0.044715) * math.sqrt(2 / math.pi)
        return v * 0.5 * (emit(v, f"tanh({inner.text})") + 1.0)
    return v * 0.5 * (emit(v, f"erf({(v * math.sqrt(0.5)).text})") + 1.0)


def hardtanh(trace, x, min_val=-1.0, max_val=1.0, inplace=False):
    return clamp(trace, real(lift(trace, x)), float(min_val), float(max_val))


def may_be_inplace(rule):
    """relu and silu of torch.nn.functional have a flag `inplace`, which is ignored."""
    return lambda trace, x, inplace=False: rule(trace, x)


def logaddexp(trace, a, b):
    a, b = (real(v) for v in ar.pair(trace, a, b))
    top = MAX(trace, a, b)
    gap = emit(a, f"log1p(exp(-abs({a.text} - {b.text})))")
    return ar.where(trace, a == b, top + LN2, top + gap)  # also of two infinities


def hypot(trace, a, b):
    a, b = ar.pair(trace, a, b)
    return emit(a, f"sqrt({(a * a + b * b).text})")


def lerp(trace, a, end, weight):
    a, b = ar.pair(trace, a, end)
    return a + (b - a) * weight


def add_scaled(rule):
    """x + value * rule(tensor1, tensor2)"""
    return lambda trace, x, tensor1, tensor2, value=1: lift(trace, x) + ar.mul(trace, rule(trace, tensor1, tensor2), value)


def masked_fill(trace, x, mask, value):
    v = lift(trace, x)
    fill = lift(trace, value)
    return ar.where(trace, lift(trace, mask), cast(fill, v.kind), v)


def stop(trace, x):
    v = lift(trace, x)
    if v.kind != FLOAT:
        return v
    raise refuse("detach() of a traced float", "a captured tensor that is detached outside the modifier")


def same(trace, x, *args, **kwargs):
    return lift(trace, x)


def to(trace, x, *args, **kwargs):
    v = lift(trace, x)
    for wanted in (*args, kwargs.get("dtype")):
        if isinstance(wanted, torch.dtype):
            return cast(v, kind_of(wanted))
        if isinstance(wanted, (Value, torch.Tensor)):
            return cast(v, kind_of(wanted.dtype))
    return v  # a device, or nothing


def kind_of(dtype) -> str:
    if dtype.is_floating_point:
        return FLOAT
    if dtype == torch.bool:
        return BOOL
    if dtype in (torch.int32, torch.int64):
        return INT
    raise refuse(f"a cast to {dtype}", "torch.int32, torch.float32 or torch.bool")


def casting(kind):
    return lambda trace, x, *args, **kwargs: cast(lift(trace, x), kind)


def filled(value):
    """zeros_like, new_ones and the like: rank 0 only, so they are literals."""

    def apply(trace, x, *size, dtype=None, **kwargs):
        scalar_shape(size, kwargs)
        return constant(trace, value, dtype or (x.dtype if isinstance(x, Value) else None))

    return apply


def full_like(trace, x, fill_value, dtype=None, **kwargs):
    return constant(trace, fill_value, dtype or lift(trace, x).dtype)


def new_full(trace, x, size, fill_value, dtype=None, **kwargs):
    scalar_shape((size,), kwargs)
    return constant(trace, fill_value, dtype or lift(trace, x).dtype)


def new_tensor(trace, x, data, dtype=None, **kwargs):
    return constant(trace, data, dtype)


def scalar_shape(size, kwargs):
    shape = kwargs.get("size", size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    if len(shape) != 0:
        raise refuse(f"a new tensor of shape {list(shape)}", "rank 0: size ()")


def constant(trace, value, dtype=None) -> Value:
    v = lift(trace, value)
    return v if dtype is None else cast(v, kind_of(dtype))

"""Functions of torch that the formula language lacks, as expressions of its operations; and searches in a short table, which
are unrolled."""

import math

from . import arithmetic as ar
from . import pointwise as pw
from .errors import refuse
from .pointwise import emit
from .values import BOOL, FLOAT, INT, cast, lift, real
from .vectors import REDUCTIONS, apply, is_vector

# atan(x) / x by powers of x * x, for |x| <= tan(pi / 8): relative error 7e-10, of the derivative 1e-7.
_ATAN = (
    0.9999999993921005,
    -0.3333330749342899,
    0.19998210797527466,
    -0.14239982918017702,
    0.10572814470211667,
    -0.060332416873021495,
)


def atan(trace, x):
    """|x| is reduced below tan(pi / 8): by 1 / x above tan(3 pi / 8), by (x - 1) / (x + 1) between these. In double the angle is
    then improved by atan(a) = b + atan((a - tan(b)) / (1 + a * tan(b))), in which the last angle is as good as its tangent."""
    v = real(lift(trace, x))
    size = emit(v, f"abs({v.text})")
    far, middle = (trace.emit(f"{size.text} > {math.tan(turn * math.pi / 8)!r}", BOOL) for turn in (3, 1))
    near = emit(
        v, f"{far.text} ? -1.0 / {size.text} : {middle.text} ? ({size.text} - 1.0) / ({size.text} + 1.0) : {size.text}"
    )
    square = near * near
    ratio = lift(trace, _ATAN[-1])
    for coefficient in reversed(_ATAN[:-1]):
        ratio = ratio * square + coefficient
    angle = near * ratio
    if trace.in_double:
        tangent = emit(v, f"tan({angle.text})")
        angle = angle + (near - tangent) / (near * tangent + 1.0)
    base = emit(v, f"{far.text} ? {math.pi / 2!r} : {middle.text} ? {math.pi / 4!r} : 0.0")
    out = base + angle
    return emit(v, f"{v.text} < 0.0 ? -{out.text} : {v.text} == 0.0 ? {v.text} : {out.text}")


def atan2(trace, y, x):
    y, x = (real(v) for v in ar.pair(trace, y, x))
    turn = emit(x, f"{y.text} < 0.0 ? (-{math.pi!r}) : {math.pi!r}")
    steep = emit(x, f"{y.text} < 0.0 ? (-{math.pi / 2!r}) : {y.text} > 0.0 ? {math.pi / 2!r} : 0.0")
    slope = atan(trace, y / x)
    inside = emit(x, f"{x.text} < 0.0 ? {(slope + turn).text} : {slope.text}")
    return emit(x, f"{x.text} == 0.0 ? {steep.text} : {inside.text}")


def asin(trace, x):
    v = real(lift(trace, x))
    return atan(trace, emit(v, f"{v.text} / sqrt((1.0 - {v.text}) * (1.0 + {v.text}))"))


def acos(trace, x):
    return -asin(trace, x) + math.pi / 2


def logit(trace, x, eps=None):
    v = real(lift(trace, x))
    if eps is not None:
        v = pw.clamp(trace, v, float(eps), 1.0 - float(eps))
    return emit(v, f"log({v.text} / (1.0 - {v.text}))")


def isclose(trace, a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    a, b = (real(v) for v in ar.pair(trace, a, b))
    near = f"{a.text} == {b.text} || abs({b.text}) < inf && abs({a.text} - {b.text}) <= {atol!r} + {rtol!r} * abs({b.text})"
    return trace.emit(f"{near} || {a.text} != {a.text} && {b.text} != {b.text}" if equal_nan else near, BOOL)


def heaviside(trace, x, values):
    x, values = (real(v) for v in ar.pair(trace, x, values))
    return emit(x, f"{x.text} > 0.0 ? 1.0 : {x.text} < 0.0 ? 0.0 : {x.text} == 0.0 ? {values.text} : {x.text}")


def ldexp(trace, x, exponent):
    v = real(lift(trace, x))
    return emit(v, f"{v.text} * exp2({real(lift(trace, exponent)).text})")


def nan_to_num(trace, x, nan=0.0, posinf=None, neginf=None):
    v = lift(trace, x)
    if v.kind != FLOAT:
        return v
    largest = 3.4028234663852886e38
    high, low = (largest if posinf is None else float(posinf), -largest if neginf is None else float(neginf))
    out = ar.where(trace, v == math.inf, high, ar.where(trace, v == -math.inf, low, v))
    return ar.where(trace, v != v, float(nan or 0.0), out)


def threshold(trace, x, threshold, value, inplace=False):
    v = lift(trace, x)
    return ar.where(trace, v > threshold, v, cast(lift(trace, value), v.kind))


def xlogy(name):
    def rule(trace, x, y):
        x, y = (real(v) for v in ar.pair(trace, x, y))
        product = emit(x, f"{x.text} * {name}({y.text})")
        return emit(x, f"{y.text} != {y.text} ? {y.text} : {x.text} == 0.0 ? 0.0 : {product.text}")

    return rule


def copysign(trace, x, y):
    x, y = (real(v) for v in ar.pair(trace, x, y))
    negative = trace.emit(pw.NEGATIVE.format(x=y.text), BOOL)
    return emit(x, f"{negative.text} ? -abs({x.text}) : abs({x.text})")


def logaddexp2(trace, a, b):
    a, b = (real(v) for v in ar.pair(trace, a, b))
    gap = emit(a, f"log1p(exp2(-abs({a.text} - {b.text}))) * {1 / math.log(2)!r}")
    return ar.where(trace, a == b, a + 1.0, emit(a, f"max({a.text}, {b.text})") + gap)


def places(trace, table, x, right):
    """The number of elements of a sorted table that are less than x, or at most x if `right`."""
    if not is_vector(table):
        raise refuse(f"a table of shape {list(table.shape)} to search in", "one of rank 1, with two elements or more")
    return REDUCTIONS["sum"](trace, apply(ar.LE if right else ar.LT, trace, (table, x), {}))


# The parameters have torch's names, since they may be given by these.


def bucketize(trace, input, boundaries, *, right=False, out_int32=False):
    return places(trace, boundaries, input, right)


def searchsorted(trace, sorted_sequence, input, *, right=False, side=None, out_int32=False, sorter=None):
    if sorter is not None:
        raise refuse("searchsorted with a sorter", "the table sorted outside the modifier")
    return places(trace, sorted_sequence, input, right or side == "right")


def isin(trace, elements, test_elements, *, assume_unique=False, invert=False):
    equal = apply(ar.EQ, trace, (test_elements, elements), {})
    found = REDUCTIONS["any"](trace, equal) if is_vector(test_elements) else equal
    return found.__invert__() if invert else found


def embedding(trace, input, weight, *args, **kwargs):
    return trace.load(weight, cast(lift(trace, input), INT))


def reshaped(name):
    """view, unsqueeze, expand and the like: of one number they give the same number."""

    def rule(trace, x, *sizes, **kwargs):
        v = lift(trace, x)
        flat = [n for size in sizes for n in (size if isinstance(size, (tuple, list)) else (size,))]
        counts = name in ("view", "reshape", "expand", "broadcast_to")
        if any(not isinstance(n, int) or (counts and n not in (1, -1)) for n in flat):
            raise refuse(f".{name}{tuple(flat)} of a traced value", "the value itself, which is one number")
        return v

    return rule


WHOLE = {"bucketize": bucketize, "searchsorted": searchsorted, "isin": isin, "embedding": embedding}
SHAPES = ("unsqueeze", "squeeze", "view", "reshape", "expand", "broadcast_to", "flatten", "ravel", "atleast_1d")

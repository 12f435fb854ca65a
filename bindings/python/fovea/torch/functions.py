"""The torch functions that a formula can say, by name: torch.tanh, Tensor.tanh and F.tanh are one. A function that is
not here is an error that names it."""
import difflib
import math

import torch

from . import arithmetic as ar
from .errors import refuse
from .values import BOOL, FLOAT, INT, Rows, Value, cast, lift, number, real, truth

LN2, LN10 = math.log(2.0), math.log(10.0)


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


def text(pattern):
    """A function of one f32, {x}, as an expression."""
    def apply(trace, x):
        v = real(lift(trace, x))
        return emit(v, pattern.format(x=v.text))
    return apply


def test(pattern):
    """A question about one f32; `false` of other types."""
    def apply(trace, x):
        v = lift(trace, x)
        if v.kind != FLOAT:
            return trace.emit("true" if pattern == _FINITE else "false", BOOL)
        return trace.emit(pattern.format(x=v.text), BOOL)
    return apply


_FINITE = "abs({x}) < inf"


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
        a, b = ar.pair(trace, a, b)
        a, b = number(a), number(b)
        sure = (a.sure or b.sure) if name == "max" else a.sure and b.sure
        return trace.emit(f"{name}({a.text}, {b.text})", a.kind, sure)
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


def leaky_relu(trace, x, negative_slope=0.01, inplace=False):
    v = real(lift(trace, x))
    return ar.where(trace, v > 0.0, v, v * float(negative_slope))


def elu(trace, x, alpha=1.0, inplace=False):
    v = real(lift(trace, x))
    return ar.where(trace, v > 0.0, v, emit(v, f"expm1({v.text})") * float(alpha))


def hardtanh(trace, x, min_val=-1.0, max_val=1.0, inplace=False):
    return clamp(trace, real(lift(trace, x)), float(min_val), float(max_val))


def unary_inplace(rule):
    """relu and silu of torch.nn.functional have a flag that says nothing here."""
    return lambda trace, x, inplace=False: rule(trace, x)


def logaddexp(trace, a, b):
    a, b = (real(v) for v in ar.pair(trace, a, b))
    top = MAX(trace, a, b)
    gap = emit(a, f"log1p(exp(-abs({a.text} - {b.text})))")
    return ar.where(trace, a == b, top + LN2, top + gap)  # also of two infinities


def lerp(trace, a, b, weight):
    a, b = ar.pair(trace, a, b)
    return a + (b - a) * weight


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


_UNARY = {
    **{name: plain(name) for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid",
                                      "erf", "sin", "cos", "tan")},
    **{name: rounding(name) for name in ("floor", "ceil", "round")},
    "log10": text(f"log({{x}}) * {1 / LN10!r}"), "erfc": text("1.0 - erf({x})"), "reciprocal": text("1.0 / {x}"),
    "sinh": text("(exp({x}) - exp(-{x})) * 0.5"), "cosh": text("(exp({x}) + exp(-{x})) * 0.5"),
    "logit": text("log({x} / (1.0 - {x}))"), "logsigmoid": text("-softplus(-{x})"),
    "silu": unary_inplace(text("{x} * sigmoid({x})")), "mish": unary_inplace(text("{x} * tanh(softplus({x}))")),
    "relu6": unary_inplace(text("clamp({x}, 0.0, 6.0)")), "softsign": text("{x} / (1.0 + abs({x}))"),
    "isnan": test("{x} != {x}"), "isinf": test("abs({x}) == inf"), "isfinite": test(_FINITE),
    "isposinf": test("{x} == inf"), "isneginf": test("{x} == (-inf)"),
    "abs": absolute, "sign": sign, "sgn": sign, "square": lambda trace, x: lift(trace, x) * x,
    "neg": lambda trace, x: -lift(trace, x), "positive": same, "trunc": lambda trace, x: ar.truncate(lift(trace, x)),
    "frac": lambda trace, x: lift(trace, x) - ar.truncate(lift(trace, x)),
    "relu": unary_inplace(lambda trace, x: MAX(trace, x, 0)), "logical_not": lambda trace, x: ~truth(lift(trace, x)),
    "bitwise_not": lambda trace, x: ~lift(trace, x), "invert": lambda trace, x: ~lift(trace, x),
}

_BINARY = {
    "add": ar.add, "sub": ar.sub, "mul": ar.mul, "div": ar.div, "true_divide": ar.div, "floor_divide": ar.floordiv,
    "floordiv": ar.floordiv, "remainder": ar.mod, "fmod": ar.fmod, "pow": ar.power, "where": ar.where,
    "rsub": lambda trace, a, b, alpha=1: ar.sub(trace, b, a, alpha),
    "rdiv": lambda trace, a, b: ar.div(trace, b, a), "rpow": lambda trace, a, b: ar.power(trace, b, a),
    "float_power": lambda trace, a, b: ar.power(trace, real(lift(trace, a)), b),
    "lt": ar.LT, "le": ar.LE, "gt": ar.GT, "ge": ar.GE, "eq": ar.EQ, "ne": ar.NE,
    "and": ar.AND, "or": ar.OR, "xor": ar.XOR, "lshift": ar.LSHIFT, "rshift": ar.RSHIFT,
    "bitwise_and": ar.AND, "bitwise_or": ar.OR, "bitwise_xor": ar.XOR,
    "bitwise_left_shift": ar.LSHIFT, "bitwise_right_shift": ar.RSHIFT,
    "logical_and": ar.logical("&&"), "logical_or": ar.logical("||"), "logical_xor": ar.logical("!="),
    "min": MIN, "max": MAX, "minimum": MIN, "maximum": MAX, "fmin": ignoring_nan(MIN), "fmax": ignoring_nan(MAX),
    "hypot": lambda trace, a, b: emit(lift(trace, a), f"sqrt({(lift(trace, a) * a + lift(trace, b) * b).text})"),
    "logaddexp": logaddexp, "lerp": lerp, "masked_fill": masked_fill,
    "addcmul": lambda trace, x, a, b, value=1: lift(trace, x) + ar.mul(trace, ar.mul(trace, a, b), value),
    "addcdiv": lambda trace, x, a, b, value=1: lift(trace, x) + ar.mul(trace, ar.div(trace, a, b), value),
    "clamp": clamp, "clip": clamp, "clamp_min": lambda trace, x, min: clamp(trace, x, min),
    "clamp_max": lambda trace, x, max: clamp(trace, x, None, max), "relu_": None,
    "softplus": softplus, "gelu": gelu, "leaky_relu": leaky_relu, "elu": elu, "hardtanh": hardtanh,
}

_SHAPES = {
    "to": to, "type": to, "type_as": to, "float": casting(FLOAT), "double": casting(FLOAT), "half": casting(FLOAT),
    "bfloat16": casting(FLOAT), "int": casting(INT), "long": casting(INT), "bool": casting(BOOL),
    "clone": same, "contiguous": same, "squeeze": same, "detach": stop, "cpu": same, "cuda": same,
    "zeros_like": filled(0), "ones_like": filled(1), "new_zeros": filled(0), "new_ones": filled(1),
    "full_like": full_like, "new_full": new_full, "new_tensor": new_tensor,
}

TABLE = {name: rule for name, rule in {**_UNARY, **_BINARY, **_SHAPES}.items() if rule is not None}
ALIASES = {
    "absolute": "abs", "negative": "neg", "divide": "div", "multiply": "mul", "subtract": "sub", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "fix": "trunc", "truediv": "div",
    "special_expit": "sigmoid", "special_exp2": "exp2", "special_expm1": "expm1", "special_log1p": "log1p",
    "special_erf": "erf", "special_erfc": "erfc", "special_round": "round", "special_logit": "logit", "mod": "remainder", "log_sigmoid": "logsigmoid",
    "rsubtract": "rsub", "rmul": "mul", "radd": "add", "rtruediv": "rdiv", "rand": "and", "ror": "or", "rxor": "xor",
}


# By every name that a function can have, so that one lookup finds it: Dynamo knows a function's name only as a key.
TABLE.update({alias: TABLE[name] for alias, name in ALIASES.items()})
TABLE.update({f"__{name}__": rule for name, rule in list(TABLE.items())})


def call(func, args, kwargs):
    """A torch function of which one argument is traced."""
    rule = TABLE.get(func.__name__)
    trace = find_trace(args, kwargs)
    if rule is None or trace is None:
        raise refuse(f"torch.{func.__name__}", instead_of(func.__name__))
    if kwargs:
        args, kwargs = positional(args, kwargs)
    return rule(trace, *args, **kwargs)


def positional(args, kwargs):
    """Arguments that torch also takes by name, at the places where rules have them."""
    rest = dict(kwargs)
    for name in ("input", "condition"):
        if name in rest:
            args = (rest.pop(name), *args)
    if "other" in rest:
        args = (*args, rest.pop("other"))
    if rest.pop("out", None) is not None:
        raise refuse("out= in a torch function", "its result")
    return args, rest


def find_trace(args, kwargs):
    for x in args:
        if isinstance(x, (Value, Rows)):
            return x.trace
        if isinstance(x, (tuple, list)):
            for y in x:
                if isinstance(y, (Value, Rows)):
                    return y.trace
    for x in kwargs.values():
        if isinstance(x, (Value, Rows)):
            return x.trace
    return None


def method(value, name):
    """value.name, a method of tensors."""
    rule = TABLE.get(name)
    if rule is None:
        raise refuse(f".{name} of a traced value", instead_of(name))

    def bound(*args, **kwargs):
        args, kwargs = positional((value, *args), kwargs)
        return rule(value.trace, *args, **kwargs)
    return bound


_HINTS = {
    "atan": "a captured table of it", "atan2": "a captured table of it", "dot": "the products, written out",
    "any": "a | b of single values", "all": "a & b of single values", "sum": "a sum of single values",
    "stack": "single values", "cat": "single values", "matmul": "the products, written out",
    "bucketize": "a captured table of the buckets, indexed by the position", "searchsorted": "a captured table",
    "embedding": "weight[index, h]", "gather": "table[i, j]", "index_select": "table[i]", "take": "table[i]",
    "rand_like": "dropout_p of fovea.torch.attention",
}


def instead_of(name: str) -> str:
    if name in _HINTS:
        return _HINTS[name]
    if name.endswith("_") and not name.startswith("_") and name[:-1] in TABLE:
        return f"the function that gives a new value: {name[:-1]}"
    near = [x for x in difflib.get_close_matches(name, TABLE, n=4) if not x.startswith("__")]
    known = "one of torch's pointwise functions: arithmetic, comparisons, torch.where, exp, log, tanh, sigmoid, clamp ..."
    return known if not near else f"{' or '.join(near)}, or another pointwise function"

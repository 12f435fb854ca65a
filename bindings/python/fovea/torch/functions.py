"""The torch functions that formulas can express, by name: torch.tanh, Tensor.tanh and F.tanh are one. Any other function is
an error that names it."""

import difflib
import operator

import torch

from . import arithmetic as ar
from . import pointwise as pw
from . import special as sp
from .errors import refuse
from .values import BOOL, FLOAT, INT, Rows, Value, lift, real, truth
from .vectors import REDUCTIONS, TRACED, apply, is_vector

SELU = "{x} > 0.0 ? {x} * 1.0507009873554805 : expm1({x}) * 1.7580993408473766"

# fmt: off
UNARY = {
    **{name: pw.plain(name) for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt")},
    **{name: pw.plain(name) for name in ("tanh", "sigmoid", "erf", "sin", "cos", "tan")},
    **{name: pw.rounding(name) for name in ("floor", "ceil", "round")},
    "log10": pw.expression("log2({x}) * 0.30102999566398120"), "logit": sp.logit,
    "angle": pw.expression("{x} < 0.0 ? 3.141592653589793 : {x} == {x} ? 0.0 : {x}"),
    "isreal": lambda trace, x: trace.emit("true", BOOL),
    "sinh": pw.expression("(expm1({x}) - expm1(-{x})) * 0.5"), "cosh": pw.expression("(exp({x}) + exp(-{x})) * 0.5"),
    "erfc": pw.expression("1.0 - erf({x})"), "reciprocal": pw.expression("1.0 / {x}"),
    "logsigmoid": pw.expression("-softplus(-{x})"), "softsign": pw.expression("{x} / (1.0 + abs({x}))"),
    "silu": pw.may_be_inplace(pw.expression("{x} * sigmoid({x})")),
    "mish": pw.may_be_inplace(pw.expression("{x} * tanh(softplus({x}))")),
    "relu6": pw.may_be_inplace(pw.expression("clamp({x}, 0.0, 6.0)")),
    "relu": pw.may_be_inplace(lambda trace, x: pw.MAX(trace, x, 0)),
    "isnan": pw.question("{x} != {x}"), "isinf": pw.question("abs({x}) == inf"), "isfinite": pw.question(pw.FINITE),
    "isposinf": pw.question("{x} == inf"), "isneginf": pw.question("{x} == (-inf)"),
    "abs": pw.absolute, "sign": pw.sign, "sgn": pw.sign, "square": lambda trace, x: lift(trace, x) * x,
    "neg": lambda trace, x: -lift(trace, x), "positive": pw.same,
    "trunc": lambda trace, x: ar.truncate(lift(trace, x)),
    "frac": lambda trace, x: lift(trace, x) - ar.truncate(lift(trace, x)),
    "asin": sp.asin, "acos": sp.acos, "atan": sp.atan, "selu": pw.activation(SELU), "signbit": pw.question(pw.NEGATIVE),
    "asinh": pw.expression("sign({x}) * log1p(abs({x}) + {x} * {x} / (1.0 + sqrt(1.0 + {x} * {x})))"),
    "acosh": pw.expression("log({x} + sqrt({x} - 1.0) * sqrt({x} + 1.0))"),
    "atanh": pw.expression("0.5 * log1p(2.0 * {x} / (1.0 - {x}))"),
    "hardsigmoid": pw.may_be_inplace(pw.expression("clamp({x} + 3.0, 0.0, 6.0) / 6.0")),
    "hardswish": pw.may_be_inplace(pw.expression("{x} * (clamp({x} + 3.0, 0.0, 6.0) / 6.0)")),
    "tanhshrink": pw.expression("{x} - tanh({x})"), "special_ndtr": pw.expression("0.5 + 0.5 * erf({x} * 0.7071067811865476)"),
    "deg2rad": pw.expression("{x} * 0.017453292519943295"), "rad2deg": pw.expression("{x} * 57.29577951308232"),
    "special_entr": pw.expression("{x} > 0.0 ? -{x} * log({x}) : {x} == 0.0 ? 0.0 : {x} < 0.0 ? (-inf) : {x}"),
    "sinc": pw.expression("{x} == 0.0 ? 1.0 : sin({x} * 3.141592653589793) / ({x} * 3.141592653589793)"),
    "logical_not": lambda trace, x: truth(lift(trace, x)).__invert__(),
    "bitwise_not": lambda trace, x: lift(trace, x).__invert__(), "invert": lambda trace, x: lift(trace, x).__invert__(),
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
    "min": pw.MIN, "max": pw.MAX, "minimum": pw.MIN, "maximum": pw.MAX,
    "fmin": pw.ignoring_nan(pw.MIN), "fmax": pw.ignoring_nan(pw.MAX), "hypot": pw.hypot,
    "logaddexp": pw.logaddexp, "lerp": pw.lerp, "masked_fill": pw.masked_fill,
    "addcmul": pw.add_scaled(ar.mul), "addcdiv": pw.add_scaled(ar.div),
    "clamp": pw.clamp, "clip": pw.clamp, "clamp_min": lambda trace, x, min: pw.clamp(trace, x, min),
    "clamp_max": lambda trace, x, max: pw.clamp(trace, x, None, max),
    "softplus": pw.softplus, "gelu": pw.gelu, "hardtanh": pw.hardtanh,
    "leaky_relu": pw.activation("{x} > 0.0 ? {x} : {x} * {negative_slope}", negative_slope=0.01),
    "prelu": pw.activation("{x} > 0.0 ? {x} : {x} * {weight}", weight=None),
    "elu": pw.activation("{x} > 0.0 ? {x} : expm1({x}) * {alpha}", alpha=1.0),
    "celu": pw.activation("{x} > 0.0 ? {x} : expm1({x} / {alpha}) * {alpha}", alpha=1.0),
    "hardshrink": pw.activation("{x} > {lambd} || {x} < -{lambd} ? {x} : 0.0", lambd=0.5),
    "softshrink": pw.activation("{x} > {lambd} ? {x} - {lambd} : {x} < -{lambd} ? {x} + {lambd} : 0.0", lambd=0.5),
    "threshold": sp.threshold, "nan_to_num": sp.nan_to_num, "atan2": sp.atan2, "copysign": sp.copysign,
    "isclose": sp.isclose, "heaviside": sp.heaviside, "ldexp": sp.ldexp,
    "logaddexp2": sp.logaddexp2, "xlogy": sp.xlogy("log"), "special_xlog1py": sp.xlogy("log1p"),
}

_SHAPES = {
    "to": pw.to, "type": pw.to, "type_as": pw.to, "float": pw.casting(FLOAT), "double": pw.casting(FLOAT),
    "half": pw.casting(FLOAT), "bfloat16": pw.casting(FLOAT), "int": pw.casting(INT), "long": pw.casting(INT),
    **{name: pw.same for name in ("conj", "conj_physical", "resolve_conj", "resolve_neg")},
    "bool": pw.casting(BOOL), "clone": pw.same, "contiguous": pw.same, "detach": pw.stop,
    "cpu": pw.same, "cuda": pw.same, "zeros_like": pw.filled(0), "ones_like": pw.filled(1),
    "new_zeros": pw.filled(0), "new_ones": pw.filled(1), "full_like": pw.full_like, "new_full": pw.new_full,
    "new_tensor": pw.new_tensor, **{name: sp.reshaped(name) for name in sp.SHAPES},
}

TABLE = {**UNARY, **_BINARY, **_SHAPES}
ALIASES = {
    "absolute": "abs", "negative": "neg", "divide": "div", "multiply": "mul", "subtract": "sub", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "fix": "trunc", "truediv": "div",
    "special_expit": "sigmoid", "special_exp2": "exp2", "special_expm1": "expm1", "special_log1p": "log1p",
    "special_erf": "erf", "special_erfc": "erfc", "special_round": "round", "special_logit": "logit",
    "log_sigmoid": "logsigmoid", "mod": "remainder", "rtruediv": "rdiv", "arctan": "atan", "arctan2": "atan2",
    "arcsin": "asin", "arccos": "acos", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "special_sinc": "sinc",
    "special_xlogy": "xlogy", "_threshold": "threshold",
}
# fmt: on

# By every name that a function can have, so that one lookup finds it: Dynamo knows a function's name only as a key.
TABLE.update({alias: TABLE[name] for alias, name in ALIASES.items()})
TABLE.update({f"__{name}__": rule for name, rule in list(TABLE.items())})


def swapped(rule):
    return lambda trace, a, b: rule(trace, b, a)


# tensor.__rmod__(value) and its like, as Dynamo calls them. (Without underscores one of them is torch.rand.)
for _name in ("add", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
    TABLE[f"__r{_name}__"] = swapped(TABLE[_name])


# Operators between a traced value and a tensor, as Dynamo hands them over.
_OPERATORS = tuple(
    (getattr(operator, prefix + name + suffix), name)
    for name in (
        *"add sub mul truediv floordiv mod pow lshift rshift and or xor".split(),
        *"lt le gt ge eq ne neg abs".split(),
    )
    for prefix in ("", "i")
    for suffix in ("", "_")
    if hasattr(operator, prefix + name + suffix)
)


def name_of(func) -> str:
    """Some versions of Dynamo (torch 2.11) know no name of operator's functions, or none that can be looked up."""
    if torch.compiler.is_compiling():
        for known, name in _OPERATORS:
            if func is known:
                return name
    return func.__name__


def call(func, args, kwargs):
    """A torch function of which one argument is traced."""
    name = name_of(func)
    rule, joins = TABLE.get(name), REDUCTIONS.get(name)
    trace = find_trace(args, kwargs)
    if name in sp.WHOLE and trace is not None:
        return sp.WHOLE[name](trace, *args, **kwargs)
    if (rule is None and joins is None) or trace is None:
        raise refuse(f"torch.{name}", instead_of(name))
    if kwargs:
        args, kwargs = positional(args, kwargs)
    return run_rule(name, rule, joins, trace, args, kwargs)


def run_rule(name, rule, joins, trace, args, kwargs):
    """A reduction of a vector if the function is one (so is torch.max of one argument); otherwise element by element."""
    if joins is not None and is_vector(args[0]) and (rule is None or len(args) == 1):
        return joins(trace, *args, **kwargs)
    if joins is not None and isinstance(args[0], Rows) and len(args[0].shape) == 1:
        return joins(trace, *args, **kwargs)  # of a row with one element
    if rule is None:
        raise refuse(f"torch.{name} of a single value", instead_of(name))
    return apply(rule, trace, args, kwargs)


def positional(args, kwargs):
    """Arguments that were given by name, at the positions where rules take them."""
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
        if isinstance(x, TRACED):
            return x.trace
        if isinstance(x, (tuple, list)):
            for y in x:
                if isinstance(y, TRACED):
                    return y.trace
    for x in kwargs.values():
        if isinstance(x, TRACED):
            return x.trace
    return None


def method(value, name):
    """value.name, a method of tensors."""
    rule, joins = TABLE.get(name), REDUCTIONS.get(name)
    if name in sp.WHOLE:
        return lambda *args, **kwargs: sp.WHOLE[name](value.trace, value, *args, **kwargs)
    if rule is None and (joins is None or isinstance(value, Value)):
        raise refuse(f".{name} of a traced value", instead_of(name))

    def bound(*args, **kwargs):
        args, kwargs = positional((value, *args), kwargs)
        return run_rule(name, rule, joins, value.trace, args, kwargs)

    return bound


_HINTS = {
    "softmax": "the score: attention takes the softmax of what a modifier returns",
    "log_softmax": "the score: attention takes the softmax of what a modifier returns",
    "dropout": "dropout_p of fovea.torch.attention",
    "any": "the value itself",
    "all": "the value itself",
    "sum": "a sum of single values, or of a row of a captured tensor",
    "stack": "single values",
    "cat": "single values",
    "matmul": "the products, written out",
    "gather": "table[i, j]",
    "index_select": "table[i]",
    "take": "table[i]",
    "rand_like": "dropout_p of fovea.torch.attention",
}


def instead_of(name: str) -> str:
    if name in _HINTS:
        return _HINTS[name]
    known = "one of torch's pointwise functions: arithmetic, comparisons, torch.where, exp, log, tanh, sigmoid, clamp ..."
    if torch.compiler.is_compiling():  # Dynamo knows the name only as a key, and can't trace the search below
        return known
    if name.endswith("_") and not name.startswith("_") and name[:-1] in TABLE:
        return f"the function that gives a new value: {name[:-1]}"
    plain = name.removeprefix("special_")  # which would make all of those alike
    near = [x for x in difflib.get_close_matches(plain, TABLE, n=4, cutoff=0.7) if not x.startswith("__")]
    return known if not near else f"{' or '.join(near)}, or another pointwise function"

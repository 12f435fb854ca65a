"""A Python modifier, traced by JAX and read as a formula.

In a jaxpr, a number that the modifier closes over is a literal like any other, so that a new value would be a new program;
and a NumPy array cannot be indexed by traced values. So such numbers and arrays (in closure cells, defaults, partials,
globals that the function names, and the functions it closes over) are found first, and the function is rebuilt with JAX
arrays in their place; literals inside the function stay as they are. Nothing about the function is cached: it is examined at
each call."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._request import TraceError
from . import _arrays as arrays
from ._captures import Captures
from ._operations import NoFormula, kind_of
from ._symbolic import JaxprReader, KnownValue
from ._terms import LEAVES, Term

ARGUMENTS = {
    "score_mod": ("score", "b", "h", "q", "k"),
    "mask_mod": ("b", "h", "q", "k"),
    "score_mod_bprop": ("grad", "score", "b", "h", "q", "k"),
}

_NEEDS_A_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def trace(
    what: str,
    function: Callable,
    captures: Captures,
    tensors: Mapping[str, Any] | None = None,
    leaves: Mapping[str, Term] | None = None,
) -> str:
    """The formula of `function`, which takes ARGUMENTS[what], and then `tensors` if there are any."""
    takes = _positional(function)
    names = ARGUMENTS[what]
    wanted = len(names) + (tensors is not None)
    last: tuple = () if tensors is None else (dict(tensors),)
    if takes is not None and not takes[0] <= wanted <= takes[1]:
        raise TraceError(
            f"{what} must take {wanted} arguments, ({', '.join(names)}{', tensors' if last else ''}); "
            f"{getattr(function, '__name__', function)!s} takes {takes[0]}"
        )
    inputs = [{**LEAVES, **(leaves or {})}[name] for name in names]
    # Integers usually belong to masks. Engines for GPUs recognise a window by its literal; the CPU engine needs only its value.
    numbers = LiftedNumbers(function, liftable_types(integers=jax.default_backend() == "cpu"))
    if numbers.values:
        try:
            return _read(what, numbers.rebuilt, [jnp.asarray(v) for v in numbers.values], inputs, last, captures)
        except Exception:  # noqa: BLE001
            # A number that Python itself needs (a shape, a slice, a loop, a branch) fails in as many ways as
            # JAX has.
            # If the numbers were not the reason, the same error is raised again below.
            pass
    return _read(what, lambda values: function, [], inputs, last, captures)


def _read(what: str, function_of: Callable, lifted: list, inputs: list[Term], last: tuple, captures: Captures) -> str:
    """The formula of function_of(lifted), a function of the leaves and of the arrays in `last`."""
    tensors, treedef = jax.tree.flatten(last)
    avals = [jax.ShapeDtypeStruct((), captures.reals if t.kind == "f32" else jnp.int32) for t in inputs]

    def whole(*args):
        places, values, rest = (args[: len(inputs)], args[len(inputs) :][: len(lifted)], args[len(inputs) + len(lifted) :])
        return function_of([_weak(v) for v in values])(*places, *jax.tree.unflatten(treedef, rest))

    try:
        closed = jax.make_jaxpr(whole)(*avals, *lifted, *tensors)
    except _NEEDS_A_VALUE as error:
        raise TraceError(
            f"{what}: Python needs a value that is not known when the formula is made (use jnp.where in "
            "place of if, & and | in place of and, or, jnp in place of numpy, jnp.asarray(table) before a "
            f"table of numpy or a list is indexed): {str(error).splitlines()[0]}"
        ) from error
    _check_result(what, closed.jaxpr.outvars)
    # A copy, so that a reading that fails leaves nothing behind.
    own = captures.copy()
    writer = own.writer()
    reader = JaxprReader(what, writer, own)
    symbols = [*(arrays.scalar(t) for t in inputs), *(KnownValue(v) for v in (*lifted, *tensors))]
    try:
        result = reader.symbolic(reader.read(closed.jaxpr, closed.consts, symbols)[0]).scalar
    except NoFormula as error:
        raise TraceError(f"{what}: {error}") from None
    captures.adopt(own)
    return writer.formula(writer.cast(result, "f32") if what != "mask_mod" else result)


def _weak(value):
    """With a weak type, as a Python number has."""
    if value.ndim:
        return value
    return jax.lax.convert_element_type(value, float if jnp.issubdtype(value.dtype, jnp.floating) else int)


def _check_result(what: str, outvars) -> None:
    if len(outvars) != 1:
        raise TraceError(f"{what} must return one value, it returns {len(outvars)}")
    out = outvars[0].aval
    try:
        kind = kind_of(out.dtype, "it")
    except NoFormula as error:
        raise TraceError(f"{what}: {error}") from None
    if out.shape:
        raise TraceError(f"{what} must return a scalar, it returns an array of shape {out.shape}")
    if what == "mask_mod" and kind != "bool":
        raise TraceError(f"mask_mod must return bool (true: kept), it returns {np.dtype(out.dtype).name}")
    if what != "mask_mod" and kind == "bool":
        raise TraceError(f"{what} must return a number, it returns bool; a mask belongs into mask_mod")


def _positional(function: Callable) -> tuple[int, float] | None:
    """How many positional arguments a function needs, and how many it can take."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    most: float = float("inf") if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(plain)
    return sum(p.default is p.empty for p in plain), most


# --- numbers and arrays of NumPy that a function has closed over ---

_DEPTH = 8  # of functions that close over functions


class LiftedNumbers:
    """Numbers found in a function, in order, and the function over other values of them."""

    def __init__(self, function: Callable, liftable: tuple[type, ...]):
        self._liftable = liftable
        self._function = function
        self.values: list[Any] = []
        self._replace(function, None, 0)  # the walk that replaces numbers also finds them

    def rebuilt(self, values) -> Callable:
        """The function with `values` where its numbers were."""
        return self._replace(self._function, iter(values), 0)

    def _replace(self, item, values, depth: int):
        if isinstance(item, bool):
            return item
        if isinstance(item, self._liftable):
            if values is not None:
                return next(values)
            self.values.append(item)
            return item
        if depth > _DEPTH:
            return item
        if isinstance(item, (tuple, list)) and type(item) in (tuple, list):
            if not any(isinstance(x, (types.FunctionType, functools.partial)) for x in item):
                return item
            return type(item)(self._replace(x, values, depth + 1) for x in item)
        if isinstance(item, functools.partial):
            function = self._replace(item.func, values, depth + 1)
            arguments = [self._replace(x, values, depth + 1) for x in item.args]
            keywords = {k: self._replace(x, values, depth + 1) for k, x in item.keywords.items()}
            return functools.partial(function, *arguments, **keywords)
        if isinstance(item, types.FunctionType) and not _is_library(item):
            return self._replace_function(item, values, depth)
        return item

    def _replace_function(self, function: types.FunctionType, values, depth: int):
        def new(item):
            return self._replace(item, values, depth + 1)

        cells = tuple(types.CellType(new(c.cell_contents)) if _is_set(c) else c for c in function.__closure__ or ())
        defaults = tuple(new(d) for d in function.__defaults__ or ()) or None
        keywords = {k: new(d) for k, d in (function.__kwdefaults__ or {}).items()} or None
        named = {
            name: function.__globals__[name]
            for name in dict.fromkeys(_names_in(function.__code__))
            if isinstance(found := function.__globals__.get(name), self._liftable) and not isinstance(found, bool)
        }
        scope = function.__globals__
        if named:
            scope = {**scope, **{name: new(value) for name, value in named.items()}}
        rebuilt = types.FunctionType(function.__code__, scope, function.__name__, defaults, cells)
        rebuilt.__kwdefaults__ = keywords
        return rebuilt


def _names_in(code: types.CodeType):
    """Also of the functions that are made inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _is_set(cell) -> bool:
    try:
        cell.cell_contents
    except ValueError:  # a name that is assigned later, or a function that names itself
        return False
    return True


def _is_library(function: types.FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] in ("jax", "numpy", "fovea")


def liftable_types(integers: bool) -> tuple[type, ...]:
    return (np.ndarray, float, np.floating, *((int, np.integer) if integers else ()))

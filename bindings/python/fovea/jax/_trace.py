"""A Python modifier, traced by JAX and read as a formula."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._request import TraceError
from . import _arrays as arrays
from ._captures import Captures
from ._numbers import Numbers, liftable_types
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
    numbers = Numbers(function, liftable_types(integers=jax.default_backend() == "cpu"))
    if numbers.values:
        try:
            return _read(
                what, numbers.rebuilt, [jnp.asarray(v) for v in numbers.values], inputs, last, captures
            )
        except Exception:  # noqa: BLE001
            # A number that Python itself needs (a shape, a slice, a loop, a branch) fails in as many ways as
            # JAX has.
            # If the numbers were not the reason, the same error is raised again below.
            pass
    return _read(what, lambda values: function, [], inputs, last, captures)


def _read(
    what: str, function_of: Callable, lifted: list, inputs: list[Term], last: tuple, captures: Captures
) -> str:
    """The formula of function_of(lifted), a function of the leaves and of the arrays in `last`."""
    tensors, treedef = jax.tree.flatten(last)
    avals = [jax.ShapeDtypeStruct((), captures.reals if t.kind == "f32" else jnp.int32) for t in inputs]

    def whole(*args):
        places, values, rest = (
            args[: len(inputs)],
            args[len(inputs) :][: len(lifted)],
            args[len(inputs) + len(lifted) :],
        )
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

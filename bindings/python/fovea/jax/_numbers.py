"""The numbers and the NumPy arrays that a Python function has closed over.

In a jaxpr a closed-over number is a literal like any other, and a new value would be a new program; an array
of NumPy can't be indexed by what is traced. Here such numbers and arrays (in closure cells, defaults,
partials, globals that the function names, and the functions it closes over) are found first, and the function
is rebuilt with arrays of JAX in their place; literals inside the function stay as they are. Nothing about the
function is cached: it is examined at each call.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

_DEPTH = 8  # of functions that close over functions


class Numbers:
    """Numbers found in a function, in order, and the function over other values of them."""

    def __init__(self, function: Callable, liftable: tuple[type, ...]):
        self._liftable = liftable
        self._function = function
        self.values: list[Any] = []
        # The walk that replaces numbers also finds them.
        self._replace(function, _Recorder(self.values), 0)

    def rebuilt(self, values) -> Callable:
        """The function with `values` where its numbers were."""
        return self._replace(self._function, iter(values), 0)

    def _replace(self, item, values, depth: int):
        if isinstance(item, bool):
            return item
        if isinstance(item, self._liftable):
            return values.take(item) if isinstance(values, _Recorder) else next(values)
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

        cells = tuple(
            types.CellType(new(c.cell_contents)) if _is_set(c) else c for c in function.__closure__ or ()
        )
        defaults = tuple(new(d) for d in function.__defaults__ or ()) or None
        keywords = {k: new(d) for k, d in (function.__kwdefaults__ or {}).items()} or None
        named = {
            name: function.__globals__[name]
            for name in dict.fromkeys(_names_in(function.__code__))
            if _is_number(function.__globals__.get(name), self._liftable)
        }
        scope = function.__globals__
        if named:
            scope = {**scope, **{name: new(value) for name, value in named.items()}}
        rebuilt = types.FunctionType(function.__code__, scope, function.__name__, defaults, cells)
        rebuilt.__kwdefaults__ = keywords
        return rebuilt


class _Recorder:
    def __init__(self, found: list[Any]):
        self._found = found

    def take(self, value):
        self._found.append(value)
        return value


def _names_in(code: types.CodeType):
    """Also of the functions that are made inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _is_number(value, liftable) -> bool:
    return isinstance(value, liftable) and not isinstance(value, bool)


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

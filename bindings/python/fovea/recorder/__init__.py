"""cuDNN-style callbacks as formulas.

A callback `(graph, score, tensors)`, as Transformer Engine and cudnn-frontend take it, runs once on a graph
object that records its operations. The result is a formula text and the tensors that it reads; cuDNN is not
needed, and no reference to the callback is kept.

    recorded = record(softcap.forward, softcap.backward, tensors={"softcap": cap})
    recorded.mod, recorded.bprop, recorded.captures
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from .._core import InvalidArgument
from .expression import Expression, as_f32, as_number, formula_text, reachable
from .graph import Graph
from .tensor import Capture, Tensor, data_type

__all__ = ["Capture", "Graph", "Recorded", "Tensor", "data_type", "is_callback", "is_function", "record"]

# A callback object keeps its state in itself: two threads that record the same one take turns.
_one_at_a_time = threading.RLock()


@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("cudnn") is not None


@contextlib.contextmanager
def cudnn_importable() -> Iterator[None]:
    """While a callback is recorded, `import cudnn` finds the real one, or else a module with `data_type` alone."""
    if "cudnn" in sys.modules or _is_installed():
        yield
        return
    module = types.ModuleType("cudnn", "Stands for cudnn while Fovea records a callback: its data types.")
    module.data_type = data_type  # type: ignore[attr-defined]
    sys.modules["cudnn"] = module
    try:
        yield
    finally:
        sys.modules.pop("cudnn", None)


class Recorded(NamedTuple):
    """A callback as formulas, with the tensors that they read."""

    mod: str
    bprop: str | None
    captures: tuple[Capture, ...]


def record(
    score_mod: Callable[..., Any],
    score_mod_bprop: Callable[..., Any] | None = None,
    *,
    tensors: Mapping[str, Any] | None = None,
    bprop_tensors: Mapping[str, Any] | None = None,
    sizes: tuple[int, int, int, int] | None = None,
) -> Recorded:
    """The formulas of cuDNN-style callbacks.

    `score_mod(graph, score, tensors)` returns the modified score; `score_mod_bprop(graph, grad, tensors)` the gradient of the
    score from that of the modified one (by default it is derived). A bprop with a fourth parameter also gets the score.
    `sizes` are (B, H, Sq, Skv): if given, extents are checked against them. Formulas do not depend on them."""
    graph = Graph(sizes)
    with _one_at_a_time, cudnn_importable():
        score = graph._leaf("score")
        graph._known = dict(tensors or {})
        mod = _result(graph, "score_mod", score_mod(graph, score, _handles(graph, tensors)))
        bprop = None
        if score_mod_bprop is not None:
            graph._known = dict(tensors or {}) | dict(bprop_tensors or {})
            handles = _handles(graph, bprop_tensors if bprop_tensors is not None else tensors)
            # One with a fourth parameter wants the score as well.
            more = (score,) if positional_parameters(score_mod_bprop) == 4 else ()
            given = score_mod_bprop(graph, graph._leaf("grad"), handles, *more)
            bprop = _result(graph, "score_mod_bprop", given)
    used = reachable([mod] if bprop is None else [mod, bprop])
    captures = tuple(capture for capture, load in graph._captures if id(load) in used)
    return Recorded(formula_text(mod), None if bprop is None else formula_text(bprop), captures)


def _handles(graph: Graph, tensors: Mapping[str, Any] | None) -> dict[str, Tensor]:
    return {key: graph._capture(key, tensor) for key, tensor in (tensors or {}).items()}


def _result(graph: Graph, name: str, given: Any) -> Expression:
    if not isinstance(given, Tensor):
        raise InvalidArgument(
            f"{name}: must return a tensor of the graph, got {type(given).__name__}; a function of three arguments is a callback "
            "(graph, score, tensors)"
        )
    return as_f32(as_number(graph._value(name, "its result", given)))


def positional_parameters(function: Any) -> int | None:
    """The number of positional parameters without a default, or None if it varies. Not by inspect.signature, which takes
    longer than tracing."""
    if isinstance(function, types.MethodType):
        inner = positional_parameters(function.__func__)
        return None if inner is None else inner - 1
    if isinstance(function, functools.partial):
        inner = positional_parameters(function.func)
        code = getattr(function.func, "__code__", None)
        named = () if code is None else code.co_varnames[: code.co_argcount]
        given = len([name for name in function.keywords if name in named])
        return None if inner is None else inner - len(function.args) - given
    if isinstance(function, types.FunctionType):
        code = function.__code__
        if code.co_flags & inspect.CO_VARARGS:  # perhaps a decorator's
            inner = getattr(function, "__wrapped__", None)
            return None if inner is None else positional_parameters(inner)
        return code.co_argcount - len(function.__defaults__ or ())
    call = getattr(type(function), "__call__", None)  # noqa: B004  an object that is called as a function
    return positional_parameters(call) - 1 if isinstance(call, types.FunctionType) else None


def is_callback(function: Any, counts: tuple[int, ...] = (3,)) -> bool:
    """Does it take (graph, score, tensors), as Transformer Engine's modifiers do, rather than (score, b, h, q_idx, kv_idx)?"""
    return callable(function) and positional_parameters(function) in counts


def is_function(function: Any) -> bool:
    """Is it an ordinary modifier of one score?"""
    return callable(function) and not is_callback(function)

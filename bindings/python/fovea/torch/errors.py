"""The error of a modifier that cannot be traced: which operation, on which line of whose file, and what would work."""

import linecache
import os
import sys

import torch

from .._request import TraceError

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

# What runs while autograd looks away would be differentiated as if it did not.
NO_DERIVATIVE = (
    "torch.autograd.Function or torch.no_grad(), whose derivative a formula does not have",
    "plain functions, which are differentiated, or score_mod_bprop of fovea.torch.attention",
)


def source_line() -> str:
    """The innermost line of the caller's own code, with its text."""
    if torch.compiler.is_compiling():  # the frame is Dynamo's; its report has the user's stack
        return ""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, _TORCH)):
        frame = frame.f_back
    if frame is None:
        return ""
    name, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, number).strip()
    return f" at {name}:{number}" + (f": {text}" if text else "")


def refuse(operation: str, instead: str, function=None) -> TraceError:
    """raise refuse("...", "...") keeps the reader's eye on the raise. With a function, the line is where it begins."""
    where = source_line() if function is None else first_line(function)
    return TraceError(f"a modifier can't use {operation}{where}\n  instead: {instead}")


def first_line(function) -> str:
    while hasattr(function, "func"):  # partials
        function = function.func
    code = getattr(function, "__code__", None) or getattr(
        getattr(function, "__func__", None), "__code__", None
    )
    return "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"

"""Errors about modifiers: which operation cannot be traced, on which line of whose file, and what would work. Also finds the
names that captured tensors have in the user's code, which is done only for errors."""

import functools
import linecache
import os
import re
import sys
import types

import torch

from .._request import TraceError, by_arguments

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

# What runs without autograd would be differentiated all the same.
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
    """The error to raise. With a function, the line is where that begins."""
    where = source_line() if function is None else first_line(function)
    return TraceError(f"a modifier can't use {operation}{where}\n  instead: {instead}")


def first_line(function) -> str:
    while hasattr(function, "func"):  # partials
        function = function.func
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
    return "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"


def closed_over(function, depth=3):
    """(name, object) of what a function takes from outside; of the functions among these, too."""
    if isinstance(function, functools.partial):
        yield from function.keywords.items()
        yield from (("an argument of a partial", x) for x in function.args)
        yield from closed_over(function.func, depth)
    elif isinstance(function, types.MethodType):
        yield from attributes(function.__self__)
        yield from closed_over(function.__func__, depth)
    elif isinstance(function, types.FunctionType):
        code = function.__code__
        found = [
            (name, cell.cell_contents) for name, cell in zip(code.co_freevars, function.__closure__ or ()) if is_set(cell)
        ]
        found += [(name, function.__globals__[name]) for name in code.co_names if name in function.__globals__]
        found += list(zip(reversed(code.co_varnames[: code.co_argcount]), reversed(function.__defaults__ or ())))
        for name, x in found:
            yield name, x
            for inner in x if isinstance(x, (list, tuple)) else (x,):
                if depth and callable(inner):
                    yield from closed_over(inner, depth - 1)
    elif callable(function) and hasattr(function, "__dict__") and not isinstance(function, type):
        yield from attributes(function)


def attributes(owner):
    """(name, object) of what `self` has."""
    named = vars(owner) if hasattr(owner, "__dict__") else {}
    if isinstance(owner, torch.nn.Module):
        named = {**named, **owner._parameters, **owner._buffers}
    return ((f"self.{name}", x) for name, x in named.items())


def is_set(cell) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def name_of(modifiers, is_meant):
    """The name, in the code of the modifiers, of the first object from outside that is meant; or None."""
    return next((name for modifier in modifiers for name, x in closed_over(modifier) if is_meant(x)), None)


def numpy_array_of(modifiers):
    """The name of the first array of NumPy's that a modifier takes from outside, or None."""
    return name_of(modifiers, lambda x: type(x).__module__ == "numpy" and getattr(x, "shape", ()) != ())


def in_users_words(error, modifiers):
    """The error with names of theirs in place of _c0 and `a captured tensor`, and Python's way to give a tensor."""
    text = re.sub(r"\b_c(\d+)\b", lambda found: captured_name(int(found[1]), modifiers) or found[0], str(error))
    subject = getattr(error, "tensor", None)
    name = None if subject is None else name_of(modifiers, lambda x: x is subject)
    if name is not None:
        text = text.replace("a captured tensor", f"the captured tensor {name!r}", 1)
    text = by_arguments(text)
    return error if text == str(error) else type(error)(text)


def captured_name(slot, modifiers):
    """The name of the captured tensor number `slot`, or None."""
    from .modifiers import traced

    try:
        tensors = traced(*modifiers).tensors
    except Exception:  # a callback, which is recorded otherwise
        return None
    return name_of(modifiers, lambda x: x is tensors[slot]) if slot < len(tensors) else None


def about(tensor, error):
    """The error with the tensor that it is about, for in_users_words()."""
    if not torch.compiler.is_compiling():
        error.tensor = tensor
    return error

"""Remembers what tracing a modifier gave, by everything that could make it give something else: the code objects that
run, every number and function they read from outside, the types and shapes of the tensors they read. All of it is read
again at every call and compared by value, so a changed closure, global, attribute, default or redefined function is
seen. Nothing of the caller's is kept alive: keys hold numbers, shapes, torch's own functions and records of code.

Where that cannot be made exact, there is no memory and the modifier is traced: code that reads objects of other kinds
(sets, subclasses of tensors, lists by anything but a constant index), that calls functions other than torch's pointwise
ones and math's, that computes with real tensors, or that runs under modes and transforms."""

import functools
import math
import types

import torch
import torch.nn.functional as F
from torch.utils._device import DeviceContext

from .._core import Reader
from .._plans import Recent
from .functions import TABLE
from .reads import RECORDS, UNKNOWN, parts_of, reads_of, record_of
from .vectors import REDUCTIONS
from .views import VIEWER

REMEMBERED = Recent(1024)

# At hand: after an attention torch's modules are out of the caches, and every lookup in them costs.
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack

_OF_VALUES = frozenset(("shape", "ndim", "dtype", "device", "dim", "numel", "size", "is_floating_point"))
METHODS = frozenset((*TABLE, *REDUCTIONS)) | _OF_VALUES


def known_functions():
    """What a modifier may call and still be remembered: given the same arguments, it does the same."""
    names = {*TABLE, *REDUCTIONS, "tensor", "scalar_tensor", "as_tensor", "full", "zeros", "ones"}
    spaces = (torch, F, torch.special)
    found = [vars(space)[name] for space in spaces for name in names if name in vars(space)]
    found += [x for x in vars(math).values() if isinstance(x, types.BuiltinFunctionType)]
    found += [abs, bool, divmod, float, int, len, max, min, pow, range, round, sum]
    return frozenset(found)


KNOWN = known_functions()


class Rules:
    """What each kind of value is to a key; fovea._core.Reader walks by it. Numbers are compared by value, tensors by their
    signature, functions by what they are (torch's own) or by what they read in turn."""

    tensors = frozenset((torch.Tensor, torch.nn.Parameter))
    numbers = frozenset((int, float, bool, str, type(None), torch.dtype, torch.Size))
    functions = frozenset((types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, type))
    always_walked = frozenset((types.MethodType, functools.partial))
    known = KNOWN
    containers = frozenset((dict, list, tuple, torch.Size))  # of which items are taken by a constant
    of_tensors = frozenset(("shape", "ndim", "dtype"))  # what a signature holds
    computed = (property, functools.cached_property)
    records, record_of, parts_of, unknown = RECORDS, staticmethod(record_of), staticmethod(parts_of), UNKNOWN

    @staticmethod
    def reads_of(record, code, bound, names):
        return reads_of(record, code, bound, names, METHODS)


READER = Reader(Rules)


def undisturbed() -> bool:
    """Does nothing but the modifier decide what tracing it gives? Asked where nothing is being compiled."""
    modes = _function_modes()
    return not (
        _dispatch_modes()
        or (modes and not (modes == 1 and is_default_device(torch._C._get_function_stack_at(0))))
        or _transforms() is not None
    )


def is_default_device(mode) -> bool:
    """torch.set_default_device and `with torch.device(...)` concern tensors that are made, which none is here."""
    return type(mode) is DeviceContext


def look(functions, key):
    """Adds to the list `key` what these modifiers (functions, texts or None) read from outside, and gives the tensors
    among it; or None where that can't be compared."""
    tensors = []
    if not READER.look(functions, key, tensors):
        return None
    seen = VIEWER.signature(tensors, False)
    if seen is None:
        return None
    key.append(seen)
    return tensors


def slots_of(trace, tensors):
    """For each captured tensor which of the read ones it is; None where one was made on the way."""
    if trace.computed:
        return None
    slots = []
    for captured in trace.tensors:
        found = [i for i, x in enumerate(tensors) if x is captured]
        if not found:
            return None
        slots.append(found[0])
    return slots

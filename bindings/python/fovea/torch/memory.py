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

from .._plans import Recent
from .functions import TABLE
from .reads import BOUND, CELL, RECORDS, UNKNOWN, parts_of, reads_of, record_of
from .vectors import REDUCTIONS

REMEMBERED = Recent(1024)

# At hand: after an attention torch's modules are out of the caches, and every lookup in them costs.
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_Function = types.FunctionType

_NUMBERS = frozenset((int, float, bool, str, type(None), torch.dtype, torch.Size))
_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
_FUNCTIONS = frozenset((types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, type))
_CONTAINERS = frozenset((dict, list, tuple, torch.Size))
_OF_VALUES = frozenset(("shape", "ndim", "dtype", "device", "dim", "numel", "size", "is_floating_point"))
METHODS = frozenset((*TABLE, *REDUCTIONS)) | _OF_VALUES
_ABSENT = object()
_DEEPEST = 8


def known_functions():
    """What a modifier may call and still be remembered: given the same arguments, it does the same."""
    names = {*TABLE, *REDUCTIONS, "tensor", "scalar_tensor", "as_tensor", "full", "zeros", "ones"}
    spaces = (torch, F, torch.special)
    found = [vars(space)[name] for space in spaces for name in names if name in vars(space)]
    found += [x for x in vars(math).values() if isinstance(x, types.BuiltinFunctionType)]
    found += [abs, bool, divmod, float, int, len, max, min, pow, range, round, sum]
    return frozenset(found)


KNOWN = known_functions()


class Forgettable(Exception):
    """There is something that cannot be compared."""


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
    try:
        for function in functions:
            if function is None or type(function) is str:
                key.append(function)
            else:
                look_into(function, key, tensors, _DEEPEST)
    except Forgettable:
        return None
    if len(tensors) > 1:
        key += [first_of(tensors, x) for x in tensors]
    return tensors


def first_of(tensors, x) -> int:
    """Which tensors are the same one."""
    for i, other in enumerate(tensors):
        if other is x:
            return i


def look_into(function, key, tensors, depth):
    bound = named = ()
    if type(function) is not _Function:
        parts = parts_of(function)
        if parts is None:
            raise Forgettable
        function, bound, named = parts
    code = function.__code__
    record = RECORDS.get(id(code))
    if record is None or record.code() is not code:  # as record_of() would look
        record = record_of(code)
    reads = record.plain
    if bound or named or reads is UNKNOWN:
        reads = reads_of(record, code, len(bound), tuple(named), METHODS)
    if reads is None or depth == 0 or type(function.__globals__) is not dict:
        raise Forgettable
    key += (record, len(bound))
    if named:
        key.append(tuple(named))
    for kind, place, steps in reads:
        if kind == CELL:
            try:
                x = function.__closure__[place].cell_contents
            except ValueError:  # not assigned yet
                raise Forgettable from None
        elif kind == BOUND:
            x = bound[place] if type(place) is int else named[place]
        else:
            x = function.__globals__.get(place, _ABSENT)
            if x is _ABSENT:
                x = function.__builtins__.get(place, _ABSENT)
        for step in steps:
            x = attribute(x, step) if type(step) is str else item(x, step[0])
        if type(x) in _TENSORS:
            key += (x.dtype, x.shape, x.device)
            tensors.append(x)
        else:
            take(x, key, tensors, depth)
    if function.__defaults__ or function.__kwdefaults__:
        take_defaults(function, key, tensors, depth)


def attribute(x, name):
    """As the modifier itself would get it. Of a tensor only what is compared of it anyway; nothing that is computed when
    it is asked for, since the modifier may not come to ask."""
    kind = type(x)
    if kind in _TENSORS:
        if name not in ("shape", "ndim", "dtype"):
            raise Forgettable
    elif kind in _NUMBERS or isinstance(getattr(kind, name, None), (property, functools.cached_property)):
        raise Forgettable
    try:
        return getattr(x, name)
    except Exception:  # whatever it is, it is the modifier's to raise
        raise Forgettable from None


def item(x, key):
    if type(x) not in _CONTAINERS:
        raise Forgettable
    try:
        return x[key]
    except (LookupError, TypeError):
        raise Forgettable from None


def take_defaults(function, key, tensors, depth):
    values = list(function.__defaults__ or ())
    key.append(len(values))
    for name, value in (function.__kwdefaults__ or {}).items():
        key.append(name)
        values.append(value)
    for value in values:
        take(value, key, tensors, depth)


def take(x, key, tensors, depth):
    """Adds what there is to compare of a value."""
    kind = type(x)
    if kind in _NUMBERS:
        key.append(kind)
        key.append(repr(x) if kind is float and not x else x)  # 0.0 == -0.0
    elif kind in _TENSORS:
        key += (x.dtype, x.shape, x.device)
        tensors.append(x)
    elif kind in _FUNCTIONS and (kind is functools.partial or kind is types.MethodType or x not in KNOWN):
        look_into(x, key, tensors, depth - 1)
    elif kind in _FUNCTIONS:
        key.append(x)
    else:
        raise Forgettable


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

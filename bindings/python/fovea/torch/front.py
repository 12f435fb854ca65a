"""Plain eager calls that were made before: from what a call is given straight to its plan. A call is known by the
signature of its tensors, its options and all that its modifiers read (memory.py), so whatever was checked, traced and
chosen for it holds. Every other call goes the long way, which says what is wrong and leaves its result here."""

import torch
import torch.autograd.forward_ad as forward_ad

from .. import _core
from .._plans import Recent
from . import memory, runtime
from .eager import Attention, asked_for
from .precision import autocast_anywhere
from .views import VIEWER

READY = Recent(1024)
SCALES = (type(None), float, int)  # what can be compared; others could change in place
# Dynamo runs this module's callers. torch.compiler.is_compiling() is asked on the long way: whatever else sets it (export)
# brings modes and tensors that look_up refuses.
is_traced = torch.compiler.is_dynamo_compiling
_transforms = torch._C._functorch.peek_interpreter_stack


class Known:
    """What fovea._core.Front asks and looks into at every call."""

    viewer, reader = VIEWER, memory.READER
    # Each gives something true where a call may not be plain.
    disturbances = (
        torch._C._len_torch_dispatch_stack,
        torch._C._len_torch_function_stack,
        torch._C._get_tracing_state,
        autocast_anywhere,
    )
    is_grad_enabled, is_deterministic = torch.is_grad_enabled, torch._C._get_deterministic_algorithms
    environment, variable = runtime.ENVIRONMENT, b"FOVEA_ENGINE"
    place, threads = staticmethod(runtime.place), torch.get_num_threads
    ready = READY.values

    @staticmethod
    def is_plain():
        return memory.undisturbed() and not (torch._C._get_tracing_state() or autocast_anywhere())


# Where torch has no table to look at tensors by, every call goes the long way.
_look_up = _core.Front(Known).look_up if isinstance(VIEWER, _core.Viewer) else None


class Ready:
    """A call with its plan."""

    __slots__ = ("call", "prepared", "slots", "quick")

    def __init__(self, call, prepared, slots, dtype):
        self.call, self.prepared = call, prepared
        self.slots = slots  # which of the tensors that look_up gives are captured, in order
        self.quick = quick(call, prepared, slots, dtype)


def quick(call, prepared, slots, dtype):
    """For fovea._core.Front to make and run by itself, where there is nothing but an output on the CPU; or None."""
    more = call.wants or call.lse or call.row_max or call.max_logit
    if more or not prepared.plain or prepared.by_value or not prepared.on_cpu:
        return None
    return _core.Quick(prepared.caller, runtime.empty_cpu, (*prepared.o, dtype), slots, call.scale)


def look_up(functions, q, k, v, options):
    """(key, [q, k, v, tensors that the modifiers read], Ready or None, runtime.place()); (None, output) where the call has
    run; or None where it is not plain."""
    if _look_up is None or forward_ad._current_level >= 0:
        return None
    return _look_up(functions, q, k, v, options)


def attend(known):
    """The outputs of a call by what look_up gave; None where it has to go the long way."""
    if not known:
        return None
    if known[0] is None:
        return known[1], None, None, None
    _, tensors, ready, where = known
    if ready is None:
        return None
    q, k, v = tensors[:3]
    call, captured = ready.call, [tensors[i] for i in ready.slots]
    if call.wants:
        if _transforms() is not None:  # what torch.func wraps has no memory to look at; this call is beside it
            return None
        return asked_for(call, Attention.apply(call, (ready.prepared, where), q, k, v, None, *captured))
    return runtime.run_forward(ready.prepared, call, q, k, v, None, captured, where)


def keep(known, functions, q, k, v, options, made):
    """After a call went the long way. `known` is what look_up gave before it, `made` the call, what it captured and how
    its formulas came to be; what was read must not have changed meanwhile, and must be bound as it is."""
    call, captured, slots = made
    if slots is None:
        return
    again = look_up(functions, q, k, v, options)
    if again is None or again[0] is None or again[0] != known[0]:
        return
    slots = [i + 3 for i in slots]
    if not all(x is again[1][i] for x, i in zip(captured, slots)):
        return
    prepared = runtime.forward_plan(call, q, k, v, None, captured, again[3])
    READY.put(known[0], Ready(call, prepared, slots, q.dtype))

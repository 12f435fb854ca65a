"""Plain eager calls that were made before: from what a call is given straight to its plan. A call is known by the
signature of its tensors, its options and all that its modifiers read (memory.py), so whatever was checked, traced and
chosen for it holds. Every other call goes the long way, which says what is wrong and leaves its result here."""

import torch
import torch.autograd.forward_ad as forward_ad

from .._plans import Recent
from . import memory, runtime
from .eager import Attention, asked_for
from .precision import autocast_anywhere

READY = Recent(1024)
SCALES = (type(None), float, int)  # what can be compared; others could change in place
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_is_grad_enabled = torch.is_grad_enabled
_is_deterministic = torch._C._get_deterministic_algorithms


class Ready:
    """A call with its plan."""

    __slots__ = ("call", "prepared", "slots")

    def __init__(self, call, prepared, slots):
        self.call, self.prepared = call, prepared
        self.slots = slots  # which of the tensors that the modifiers read are captured, in order


def look_up(functions, q, k, v, options):
    """(key, tensors that the modifiers read, Ready or None, runtime.place()), or None where a call is not plain."""
    if (
        not memory.undisturbed()
        or autocast_anywhere()
        or forward_ad._current_level >= 0
        or not (type(q) in _PLAIN and type(k) in _PLAIN and type(v) in _PLAIN)
    ):
        return None
    grad = _is_grad_enabled()
    # fmt: off
    key = [
        options, _is_deterministic(), runtime.ENVIRONMENT.get(b"FOVEA_ENGINE"),
        q.shape, q.stride(), q.dtype, q.device,
        k.shape, k.stride(), k.dtype, k.device,
        v.shape, v.stride(), v.dtype, v.device,
        grad,
    ]
    # fmt: on
    tensors = memory.look(functions, key)
    if tensors is None:
        return None
    if grad:
        key += (q.requires_grad, k.requires_grad, v.requires_grad)
    for x in tensors:
        key += (x.stride(), grad and x.requires_grad)
    where = runtime.place(q)
    key.append(where[2])
    key = tuple(key)
    return key, tensors, READY.get(key), where


def attend(known, q, k, v):
    """The outputs of a call that look_up has found."""
    _, tensors, ready, where = known
    call, captured = ready.call, [tensors[i] for i in ready.slots]
    if call.wants:
        return asked_for(call, Attention.apply(call, (ready.prepared, where), q, k, v, None, *captured))
    return runtime.run_forward(ready.prepared, call, q, k, v, None, captured, where)


def keep(known, functions, q, k, v, options, made):
    """After a call went the long way. `known` is what look_up gave before it, `made` the call, what it captured and how
    its formulas came to be; what was read must not have changed meanwhile, and must be bound as it is."""
    call, captured, slots = made
    if slots is None:
        return
    again = look_up(functions, q, k, v, options)
    if again is None or again[0] != known[0]:
        return
    if not all(x is again[1][i] for x, i in zip(captured, slots)):
        return
    prepared = runtime.forward_plan(call, q, k, v, None, captured, again[3])
    READY.put(known[0], Ready(call, prepared, slots))

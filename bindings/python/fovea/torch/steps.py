"""Runs a modifier on light symbols at every call. fovea._core.Steps writes down what it does to them, which takes less
than a microsecond for an operation and says exactly which formula it is: closures, globals and parameters are always
the current ones. Steps that were not seen before are replayed on the symbols of values.py, which know types and rules
and give the formula's text."""

import torch
from torch.overrides import TorchFunctionMode

from .._core import Steps
from .._request import TraceError
from .functions import TABLE
from .modifiers import KINDS, Formulas, one_line, take_captured, traced
from .trace import FILLED, NUMBERS, Trace, Tracing, is_single, positions, refuse_write
from .values import FLOAT, Value
from .vectors import REDUCTIONS
from .views import PLAIN


class Hooks:
    """What Steps asks about what it meets."""

    tensors = PLAIN
    constants = frozenset((torch.dtype, torch.device, torch.layout, torch.memory_format))
    methods = frozenset(name for name in (*TABLE, *REDUCTIONS, "unbind") if not name.startswith("__"))

    @staticmethod
    def known_value(steps, number):
        """The symbol with its rules, for a modifier that asks what can't be written down: x.dtype, len(x)."""
        return replay(steps).values[number]

    @staticmethod
    def number_in(tensor):
        """Of a captured tensor on the host beside a query elsewhere: its number, if it has but one; else None."""
        if tensor.requires_grad or tensor.device.type != "cpu" or tensor.numel() != 1:
            return None
        return tensor.item()  # no copy to the device, and no wait for it

    @staticmethod
    def number_of(x):
        """A number of NumPy as Python's, or None."""
        is_number = hasattr(x, "item") and not isinstance(x, torch.Tensor) and x.shape == ()
        return x.item() if is_number else None


class Replayed:
    """A trace of values.py: its symbol for each symbol of the steps, and the texts of the modifiers that have ended."""

    def __init__(self, like):
        self.trace = trace = Trace(like)
        self.values = [Value(trace, "score", FLOAT), Value(trace, "grad", FLOAT), *positions(trace)]
        self.texts = []


def replay(steps) -> Replayed:
    """To the end of the steps that there are."""
    if steps.replayed is None:
        steps.replayed = Replayed(steps.like)
    done = steps.replayed
    with Tracing(done.trace):
        while (ended := steps.replay(done.values)) is not None:
            is_function, returned = ended
            kind = KINDS[len(done.texts)]
            done.texts.append(done.trace.formula(returned, kind) if is_function else one_line(returned or ""))
    return done


class Recording(TorchFunctionMode):
    """Sees every torch function while a modifier runs: those of real tensors run, those with symbols are written down."""

    def __init__(self, steps):
        self.steps = steps

    def __torch_function__(self, func, types, args=(), kwargs=None):
        symbol = self.steps.call(func, args, kwargs)
        if symbol is not None:
            return symbol
        if (func in NUMBERS or func in FILLED) and is_single(func, args):
            return self.steps.call(func, args, kwargs, True)
        refuse_write(func)
        return func(*args, **(kwargs or {}))


def written(modifiers, like):
    """What score_mod, mask_mod and perhaps a derivative by hand (functions, texts or None) do, as Steps. None if they do
    what no step can hold, or raise: the long way then runs them again and says why."""
    steps = Steps(Hooks, like, like.is_cpu)
    try:
        with Recording(steps):
            steps.run(modifiers)
    except Exception:
        return None
    return steps


def formulas_of(steps, modifiers) -> Formulas:
    """The texts of modifiers that were run, with the tensors that they captured; `slots` says which of the steps' these
    are."""
    out = Formulas()
    if steps is None:  # there are no modifiers
        return out
    try:
        done = replay(steps)
    except TraceError:
        traced(*modifiers, like=steps.like)
        raise
    out.mod, out.mask, out.bprop = (*done.texts, "")[:3]
    take_captured(out, done.trace, steps.like)
    out.slots = [slot_of(x, steps.tensors) for x in done.trace.tensors]
    return out


def slot_of(captured, tensors) -> int:
    """A tensor of one element that was taken for a number is captured as one of rank 0, in the same memory."""
    same = lambda x: x is captured or (x.numel() == captured.numel() == 1 and x.data_ptr() == captured.data_ptr())
    return next(i for i, x in enumerate(tensors) if same(x))

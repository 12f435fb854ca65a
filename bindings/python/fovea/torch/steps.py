"""Runs a modifier on light symbols at every call. fovea._core.Steps records what it does to them, which takes less than a
microsecond per operation and says exactly which formula it is: closures, globals and parameters are always current. New
steps are replayed on the symbols of values.py, which know types and rules and give the text of the formula."""

import torch
from torch.overrides import TorchFunctionMode

from .._core import Steps
from .._plans import LruCache
from .._request import TraceError
from .call import PLAIN
from .functions import TABLE
from .modifiers import KINDS, Formulas, bindable, one_line, traced
from .special import WHOLE
from .trace import FILLED, NUMBERS, Trace, TracingMode, is_single, positions, refuse_write
from .values import FLOAT, Value
from .vectors import REDUCTIONS


class Hooks:
    """The questions of Steps that need torch."""

    is_grad_enabled = torch.is_grad_enabled
    tensors = PLAIN
    constants = frozenset((torch.dtype, torch.device, torch.layout, torch.memory_format))
    methods = frozenset(name for name in (*TABLE, *REDUCTIONS, *WHOLE, "unbind") if not name.startswith("__"))

    @staticmethod
    def known_value(steps, number):
        """The symbol that knows its type, for what a modifier asks and no step can answer: x.dtype, len(x)."""
        return replay(steps).values[number]

    @staticmethod
    def number_in(tensor):
        """The number in a captured tensor of one element on the host, if the query is elsewhere; else None."""
        if tensor.requires_grad or tensor.device.type != "cpu" or tensor.numel() != 1:
            return None
        return tensor.item()  # no copy to the device, and no wait for it

    @staticmethod
    def number_of(x):
        """A NumPy number as a Python number; None for anything else."""
        is_number = hasattr(x, "item") and not isinstance(x, torch.Tensor) and x.shape == ()
        return x.item() if is_number else None


class Replay:
    """A trace of values.py: its symbol for each symbol of the steps, and the texts of the modifiers that have ended."""

    def __init__(self, like):
        self.trace = trace = Trace(like)
        self.values = [Value(trace, "score", FLOAT), Value(trace, "grad", FLOAT), *positions(trace)]
        self.texts = []


def replay(steps) -> Replay:
    """Replays the steps that were written so far."""
    if steps.replayed is None:
        steps.replayed = Replay(steps.like)
    done = steps.replayed
    with TracingMode(done.trace):
        while (ended := steps.replay(done.values, done.trace.shift)) is not None:
            is_function, returned = ended
            kind = KINDS[len(done.texts)]
            done.texts.append(done.trace.formula(returned, kind) if is_function else one_line(returned or ""))
    return done


class RecordingMode(TorchFunctionMode):
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
    """The Steps of score_mod, mask_mod and perhaps a hand-written derivative (functions, texts or None). None if they raise
    or do something that has no step: the call then takes the long way, which runs them again and raises the error."""
    # On GPUs numbers of a training step stay in the formula: cuDNN skips tiles of diagonals that it knows. Engine jit lifts them.
    steps = Steps(Hooks, like, like.is_cpu, like.is_cpu or not like.requires_grad)
    try:
        with RecordingMode(steps):
            steps.run(modifiers)
    except Exception:
        return None
    return steps


def formulas_of(steps, modifiers) -> Formulas:
    """The texts of the modifiers with the tensors that they capture; `slots` are the numbers of these among the tensors of
    the steps."""
    out = Formulas()
    if steps is None:  # there are no modifiers
        return out
    key = (steps.key(), steps.like.dtype, *((x.dtype, x.dim()) for x in steps.tensors))
    kept = TEXTS.get(key)
    if kept is None:
        kept = replayed_texts(steps, modifiers, key)
    texts, captured, out.slots, out.uses = kept
    out.mod, out.mask, out.bprop = texts
    out.values = list(steps.shifts)
    out.scalars = [(f"_i{i}", "i32") for i in range(len(out.values))]
    if captured is None:
        captured = [steps.tensors[i] for i in out.slots]
    out.names = [f"_c{i}" for i in range(len(captured))]
    out.tensors = [bindable(x, steps.like) for x in captured]
    return out


TEXTS = LruCache(1024)  # of steps whose text is the same for all lengths


def replayed_texts(steps, modifiers, key):
    """(texts, captured tensors, slots, uses). Kept, without the tensors, if no text depends on a shape."""
    try:
        done = replay(steps)
    except TraceError:
        traced(*modifiers, like=steps.like)  # raises the same error with the user's line
        raise
    trace = done.trace
    slots = [slot_of(x, steps.tensors) for x in trace.tensors]
    found = (*done.texts, "")[:3], trace.tensors, slots, trace.uses()
    if not trace.asked_shapes:
        TEXTS.put(key, (found[0], None, *found[2:]))
    return found


def slot_of(captured, tensors) -> int:
    """Its number among the tensors of the steps. One with a single element may be captured as a view of rank 0."""
    same = lambda x: x is captured or (x.numel() == captured.numel() == 1 and x.data_ptr() == captured.data_ptr())
    return next(i for i, x in enumerate(tensors) if same(x))

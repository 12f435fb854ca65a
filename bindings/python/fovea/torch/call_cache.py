"""Finds the plan of a plain eager call from its arguments. The key has the steps of its modifiers (steps.py), its options and
the signatures of its tensors, so what was checked, traced and chosen for the first such call holds for all of them. One
table has the plans of all calls, including those of backward passes and of the operators of ops.py."""

import torch

from .. import _core
from .._plans import LruCache
from . import state
from .call import PLAIN, VIEWER
from .steps import formulas_of, written

TABLE = LruCache(1024)


class Facts:
    """What fovea._core.CallCache uses at every call."""

    viewer = VIEWER
    is_grad_enabled, is_deterministic = torch.is_grad_enabled, torch.are_deterministic_algorithms_enabled
    place, threads = staticmethod(state.place), torch.get_num_threads
    table = TABLE.values


# If torch has no DLPack table of C functions, every call goes the long way.
find = _core.CallCache(Facts).look_up if isinstance(VIEWER, _core.Viewer) else None


def may_look_up() -> bool:
    """May the call be looked up? Asked if nothing is being compiled."""
    return find is not None and state.is_plain()


class FoundCall:
    """A plain call that was looked up and has not run; `prepared` is its plan, or None if it is the first such call."""

    __slots__ = ("modifiers", "steps", "scale", "values", "key", "tensors", "prepared", "where")

    def __init__(self, modifiers, steps, scale, found):
        self.modifiers, self.steps, self.scale = modifiers, steps, scale
        self.values = () if steps is None else steps.shifts  # of scalars
        self.key, self.tensors, self.prepared, self.where = found

    @property
    def count(self) -> int:
        """The number of tensors that the modifiers use; they are the last ones of `tensors`."""
        return 0 if self.steps is None else len(self.steps.tensors)

    def formulas(self):
        return formulas_of(self.steps, self.modifiers)


def look_up(options, modifiers, tensors, scale):
    """Finds a call: `modifiers` are score_mod, mask_mod and perhaps the derivative by hand, `tensors` q, k, v and perhaps
    the sinks. A FoundCall; or, if the call has run, (its tensors, its plan, its outputs, its steps); or None if it must take the
    long way, which also raises errors."""
    q = tensors[0]
    if type(q) not in PLAIN:
        return None
    steps = None
    if modifiers not in NO_MODIFIERS:
        steps = written(modifiers, q)
        if steps is None:
            return None
    found = find(options, steps, tensors, scale, ())
    if found is None:
        return None
    return (*found[1:], steps) if found[0] is None else FoundCall(modifiers, steps, scale, found)


NO_MODIFIERS = ((None, None), (None, None, None))

"""The value of a callback at one point, through the formula that was recorded of it."""

import fovea
from fovea._arrays import host_array
from fovea._request import program_line
from fovea.recorder import record


def program_of(recorded):
    declared = [(one.name, one.dtype, one.extents) for one in recorded.captures]
    return fovea.Program(program_line(recorded.mod, None, recorded.bprop, declared))


def evaluate(callback, score, at=(0, 0, 0, 0), bprop=None, grad=0.0, tensors=None):
    """Of the callback, or of its bprop if one is given."""
    recorded = record(callback, bprop, tensors=tensors)
    bound = tuple(host_array(one.key, one.tensor).captured(one.name) for one in recorded.captures)
    mod, _, back = program_of(recorded).core.evaluate(score, at, (4, 4, 4, 8, 8), grad=grad, tensors=bound)
    return mod if bprop is None else back

"""The value of a callback at one point, through the formula that was recorded of it."""

import fovea
from fovea._arrays import host_array
from fovea._request import program_line
from fovea.recorder import record


def evaluate(callback, score, at=(0, 0, 0, 0), bprop=None, grad=0.0, tensors=None):
    """Of the callback, or of its bprop if one is given."""
    recorded = record(callback, bprop, tensors=tensors)
    program = fovea.Program(program_line(recorded.mod, None, recorded.bprop, recorded.declarations))
    bound = tuple(host_array(one.key, one.tensor).captured(one.name) for one in recorded.captures)
    mod, _, back = program.core.evaluate(score, at, (4, 4, 4, 8, 8), grad=grad, tensors=bound)
    return mod if bprop is None else back

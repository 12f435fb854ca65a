"""Short vectors in a modifier, unrolled: a row of a captured table, or a captured tensor of rank 1 that is combined with a
position ((offsets <= q_idx).sum(), torch.dot(a[h], b[k])). Each element is a value of its own; a reduction joins them."""

import torch

from .errors import refuse
from .values import BOOL, INT, Rows, Traced, Value, cast, lift, number, truth

LONGEST = 256


class Vector(Traced):
    """Values side by side, as a tensor of rank 1 would hold them."""

    __slots__ = ("trace", "items")

    def __init__(self, trace, items):
        self.trace = trace
        self.items = items

    @property
    def shape(self):
        return torch.Size([len(self.items)])

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __getitem__(self, index):
        if isinstance(index, int) or isinstance(index, slice):
            picked = self.items[index]
            return Vector(self.trace, picked) if isinstance(index, slice) else picked
        raise refuse("a traced index into computed values", "the index on the captured tensor, before the arithmetic")

    def __bool__(self):
        raise refuse("a Python branch on traced values", "x.any() or x.all(), and torch.where")


def is_vector(x) -> bool:
    """A captured tensor of one element counts as a number; a row of one element is a vector."""
    if isinstance(x, torch.Tensor):
        return x.dim() == 1 and x.shape[0] != 1
    return isinstance(x, Vector) or (isinstance(x, Rows) and len(x.shape) == 1)


def items_of(trace, x):
    if isinstance(x, Vector):
        return x.items
    trace.asked_shapes = True
    if x.shape[0] > LONGEST:
        raise refuse(
            f"a vector of {x.shape[0]} elements, unrolled", f"at most {LONGEST}; a table made outside, indexed by position"
        )
    return [trace.load(x, i) if isinstance(x, torch.Tensor) else x[i] for i in range(x.shape[0])]


def apply(rule, trace, args, kwargs):
    """A rule of single values, applied to each element of vectors. A vector of one element is broadcast."""
    lengths = {x.shape[0] for x in args if is_vector(x)}
    if not lengths:
        return rule(trace, *args, **kwargs)
    if len(lengths - {1}) > 1:
        raise refuse(f"vectors of {min(lengths)} and {max(lengths)} elements together", "vectors of one length")
    length = next(iter(lengths - {1}), 1)
    columns = [items_of(trace, x) if is_vector(x) else [x] for x in args]
    columns = [items if len(items) == length else items * length for items in columns]
    return Vector(trace, [rule(trace, *row, **kwargs) for row in zip(*columns)])


def reduction(symbol, empty, prepare):
    """A reduction by an operator of the language."""

    def reduce(trace, x, dim=None, keepdim=False, dtype=None):
        values = [prepare(lift(trace, item)) for item in items_of(trace, x)]
        if not values:
            return lift(trace, empty)
        return trace.emit(symbol.join([value.text for value in values]), values[0].kind)

    return reduce


def chosen(name):
    def reduce(trace, x, dim=None, keepdim=False):
        if dim is not None:
            raise refuse(f"{name} with dim, which has two results", f"torch.a{name}(x)")
        out, *rest = [number(lift(trace, item)) for item in items_of(trace, x)]
        for value in rest:
            out = trace.emit(f"{name}({out.text}, {value.text})", out.kind)
        return out

    return reduce


def mean(trace, x, dim=None, keepdim=False, dtype=None):
    return REDUCTIONS["sum"](trace, x) / float(x.shape[0])


def dot(trace, a, b):
    from .arithmetic import mul

    return REDUCTIONS["sum"](trace, apply(mul, trace, (a, b), {}))


def counted(value):
    """A bool as an int, since sums count them."""
    return cast(value, INT) if value.kind == BOOL else value


REDUCTIONS = {
    "sum": reduction(" + ", 0, counted),
    "any": reduction(" || ", False, truth),
    "all": reduction(" && ", True, truth),
    "prod": reduction(" * ", 1, counted),
    "max": chosen("max"),
    "min": chosen("min"),
    "amax": lambda trace, x, dim=0, keepdim=False: chosen("max")(trace, x),
    "amin": lambda trace, x, dim=0, keepdim=False: chosen("min")(trace, x),
    "mean": mean,
    "dot": dot,
    "inner": dot,
}


TRACED = (Value, Rows, Vector)

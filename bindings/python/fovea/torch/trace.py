"""Runs a modifier on symbols that know types and rules, and records what it does as formula text. Used for new steps
(steps.py), and for every call that is not plain eager."""

import operator

import torch
from torch.overrides import TorchFunctionMode

from . import (
    arithmetic,  # noqa: F401  installs the operators
    dynamo,  # noqa: F401  for Dynamo, too
)
from .errors import NO_DERIVATIVE, about, numpy_array_of, refuse
from .functions import UNARY, call, name_of
from .pointwise import constant
from .state import dispatch_modes, transforms
from .values import BOOL, FLOAT, INT, LEAVES, Rows, Value, lift, literal
from .vectors import TRACED, Vector

_GETITEM = torch.Tensor.__getitem__
_SETITEM = torch.Tensor.__setitem__
NUMBERS = (torch.tensor, torch.scalar_tensor, torch.as_tensor)
FILLED = (torch.full, torch.zeros, torch.ones)
_INDEX_TYPES = (torch.int32, torch.int64, torch.uint8, torch.bool)


def in_double(like) -> bool:
    return like is not None and like.dtype == torch.float64


class Trace:
    """What one call captures: formula lines, tensors, and by which leaf each of their dimensions is indexed."""

    def __init__(self, like=None):
        self.device = None if like is None else like.device
        self.in_double = in_double(like)
        self.transforms = 0 if torch.compiler.is_compiling() else transforms()  # of torch.func, around the whole call
        self.with_gradients = torch.is_grad_enabled()
        self.lines = []
        self.count = 0
        self.tensors = []
        self.leaves = []  # per tensor, per dimension: "b", "h", "q", "k", or "" for anything else
        self.shifts = 0  # numbers that move positions and are bound as scalars
        self.asked_shapes = False  # a modifier asked for the shape of a captured tensor: another shape may give another text

    def emit(self, text, kind, nonnegative=False):
        if self.with_gradients and not torch.is_grad_enabled():
            raise refuse(*NO_DERIVATIVE)
        name = "_t" + str(self.count)
        self.count += 1
        self.lines.append("let " + name + " = " + text + "; ")
        return Value(self, name, kind, nonnegative)

    def uses(self):
        return ["".join([leaf or "-" for leaf in leaves]) for leaves in self.leaves]

    def shift(self, number):
        """The scalar for a number beside a position. Texts may depend on whether it is negative."""
        self.shifts += 1
        return Value(self, f"_i{self.shifts - 1}", INT, number >= 0)

    def capture(self, tensor) -> int:
        for i, known in enumerate(self.tensors):
            if known is tensor:
                return i
        if not torch.compiler.is_compiling() and transforms() > self.transforms:
            raise refuse(
                "torch.vmap inside it", "the vectors themselves: (first <= q_idx).any(), torch.dot(a[h], b[kv_idx])"
            )
        self.tensors.append(tensor)
        self.leaves.append([None] * tensor.dim())
        return len(self.tensors) - 1

    def load_single(self, tensor):
        if tensor.dim() != 0:
            self.asked_shapes = True
            if tensor.numel() != 1:
                raise about(
                    tensor,
                    refuse(
                        f"a captured tensor of shape {list(tensor.shape)} as a number",
                        "an index for each of its dimensions: table[h, q_idx]",
                    ),
                )
            tensor = tensor.reshape(())
        if tensor.device.type == "cpu" and self.device is not None and self.device.type != "cpu" and is_number(tensor):
            return literal(self, tensor.item())  # no copy to the device, and no wait for it
        return self.load(tensor, ())

    def load(self, tensor, index, given=None):
        """tensor[index], with the indices `given` before; a Value, or Rows if dimensions are left."""
        items = index if isinstance(index, tuple) else (index,)
        if given is None and len(items) == tensor.dim() and all_ints(items):  # what most modifiers do
            return self.loaded(tensor, items)
        given = list(given or [None] * tensor.dim())
        open_dims = [d for d, i in enumerate(given) if i is None]
        for d, item in zip(open_dims, spread(items, len(open_dims))):
            given[d] = self.checked_index(tensor, item)
        rest = [d for d in open_dims if given[d] is None]
        if rest:
            self.asked_shapes = True
            return Rows(self, tensor, given, torch.Size([tensor.shape[d] for d in rest]))
        return self.loaded(tensor, given)

    def loaded(self, tensor, indices):
        slot = self.capture(tensor)
        texts = [self.index_text(slot, d, i) for d, i in enumerate(indices)]
        dtype = tensor.dtype
        text = "_c" + str(slot) + "[" + ", ".join(texts) + "]"
        if dtype is torch.float32:
            return self.emit(text, FLOAT)
        return self.emit(text, element_kind(tensor), dtype is torch.uint8)

    def checked_index(self, tensor, item):
        if isinstance(item, slice):
            if item != slice(None):
                raise refuse("a slice beside a traced index", "table[a:b] outside the modifier")
            return None
        if isinstance(item, torch.Tensor) and item.dim() == 0 and item.dtype in _INDEX_TYPES:
            return self.load_single(item)
        if isinstance(item, Value):
            if item.kind != INT:
                raise refuse(f"a {item.dtype} as an index", "x.to(torch.int32)" if item.kind == FLOAT else "torch.where")
            return item
        if isinstance(item, bool) or not isinstance(item, int):
            raise refuse(f"a {type(item).__name__} as an index", "integers and traced values")
        return literal(self, item)

    def index_text(self, slot, d, index):
        """The index, counted from the end if it is negative, as in torch. `#slot.d` stands for the extent."""
        leaf = index.text if index.text in LEAVES else ""
        seen = self.leaves[slot]
        seen[d] = leaf if seen[d] is None else seen[d]
        if index.nonnegative:
            return index.text
        extent = "#" + str(slot) + "." + str(d)
        wrapped = index.text + " < 0 ? " + index.text + " + " + extent + " : " + index.text
        return self.emit(wrapped, INT, True).text

    def formula(self, out, wanted, function=None):
        """The text of what a modifier returned, and a fresh start for the next one."""
        if isinstance(out, (Rows, Vector)):
            raise refuse(f"a result of shape {list(out.shape)}", "one value: x.sum(), x[0] ...", function)
        if not isinstance(out, (Value, bool, int, float, torch.Tensor)):
            raise refuse(f"a result of type {type(out).__name__}", "a number, a bool or a value of the trace", function)
        value = lift(self, out)
        text = value.text
        if wanted == BOOL and value.kind != BOOL:
            raise refuse(f"a mask of type {value.dtype}", "a bool: a comparison, or x.to(torch.bool)", function)
        if wanted == FLOAT and value.kind == BOOL:
            text = "f32(" + text + ")"
        text = "".join(self.lines) + text
        self.lines = []
        return text


def all_ints(items) -> bool:
    for x in items:
        if not (isinstance(x, Value) and x.kind == INT):
            return False
    return True


def is_number(tensor) -> bool:
    """May its value be read now?"""
    return not (tensor.requires_grad or torch.compiler.is_compiling() or dispatch_modes())


def spread(items, rank):
    """Indices with `...` expanded, and slices for those that are missing."""
    for item in items:
        if item is None:
            raise refuse("None as an index (a new dimension)", "indices only")
    given = len([i for i in items if i is not Ellipsis])
    if given > rank:
        raise refuse(f"{given} indices of a captured tensor with {rank} dimensions left", f"at most {rank}")
    out = []
    for item in items:
        if item is Ellipsis:
            out += [slice(None)] * (rank - given)
        else:
            out.append(item)
    return out + [slice(None)] * (rank - len(out))


def element_kind(tensor) -> str:
    if tensor.dtype.is_floating_point:
        return FLOAT
    if tensor.dtype.is_complex:
        raise refuse("a complex tensor", "its real and imaginary parts, captured apart")
    return BOOL if tensor.dtype == torch.bool else INT


class TracingMode(TorchFunctionMode):
    """Sees every torch function while a modifier runs: those of real tensors run, those with symbols are recorded."""

    def __init__(self, trace):
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is _GETITEM or func is operator.getitem:  # the latter by Dynamo, of parameters
            index = args[1]
            if any_traced(index if isinstance(index, tuple) else (index,)):
                table = args[0] if isinstance(args[0], torch.Tensor) else torch.as_tensor(args[0])  # an array, in Dynamo
                return self.trace.load(table, index)
            return func(*args)
        if len(args) == 1 and not kwargs and isinstance(args[0], Value):  # torch.tanh(score) and its like
            rule = UNARY.get(name_of(func))
            if rule is not None:
                return rule(self.trace, args[0])
        kwargs = kwargs or {}
        if any_traced(args) or any_traced(kwargs.values()):
            if func is _SETITEM:
                raise refuse("a write into a tensor", "torch.where(condition, new, old)")
            return call(func, args, kwargs)
        return self.of_real_tensors(func, args, kwargs)

    def of_real_tensors(self, func, args, kwargs):
        if func in NUMBERS or func in FILLED:
            if is_single(func, args):
                value = args[0] if func in NUMBERS else args[1] if func is torch.full else float(func is torch.ones)
                return constant(self.trace, value, kwargs.get("dtype"))
        elif not torch.compiler.is_compiling():  # Dynamo sees writes by itself
            refuse_write(func)
        return func(*args, **kwargs)


def is_single(func, args) -> bool:
    """Does torch.tensor and its like make a single number of Python's numbers?"""
    if not args:
        return False
    if func in NUMBERS:
        return isinstance(args[0], (bool, int, float))
    return isinstance(args[0], (tuple, list)) and len(args[0]) == 0


def refuse_write(func):
    name = func.__name__
    if func is _SETITEM or (name.endswith("_") and not name.endswith("__") and name != "requires_grad_"):
        raise refuse(f"a write into a tensor ({name})", "a new tensor, or torch.where(condition, new, old)")


def any_traced(items) -> bool:
    for x in items:
        if isinstance(x, TRACED):
            return True
    return False


def run(trace, function, kind, *first):
    """The formula of a function of the leaves named by `first` and of positions, which gives a value of that kind."""
    with_gradients = trace.with_gradients
    trace.with_gradients = with_gradients and kind is not BOOL  # a mask has no derivative to lose
    try:
        with TracingMode(trace):
            out = function(*[Value(trace, leaf, FLOAT) for leaf in first], *positions(trace))
    except IndexError:  # NumPy's message does not name the array
        name = None if torch.compiler.is_compiling() else numpy_array_of([function])
        if name is None:
            raise
        raise refuse(f"{name!r}, an array of NumPy's, with a traced index", f"torch.as_tensor({name})", function) from None
    except TypeError as error:
        if "__array_ufunc__" not in str(error):
            raise
        raise refuse("a function of NumPy's", "torch's of that name: torch.tanh for numpy.tanh", function) from None
    finally:
        trace.with_gradients = with_gradients
    return trace.formula(out, kind, function)


def positions(trace):
    return [Value(trace, leaf, INT, True) for leaf in LEAVES]

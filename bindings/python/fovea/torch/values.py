"""The symbols that a modifier is run on: pieces of formula text with a type. An operation on them appends a line
`let tN = ...;` to the trace and gives the symbol tN. Nothing here touches a tensor's data."""

import torch

from .._request import float_text
from .errors import refuse

FLOAT, INT, BOOL = "f", "i", "b"
DTYPES = {FLOAT: torch.float32, INT: torch.int32, BOOL: torch.bool}
LEAVES = ("b", "h", "q", "k")
_BRANCH = "torch.where(condition, a, b), and & | ~ or torch.logical_* for and, or, not"


class Traced:
    """What symbols have in common: torch's functions and the methods of tensors take them."""

    __slots__ = ()
    __hash__ = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from .functions import call

        return call(func, args, kwargs or {})

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        from .functions import method

        return method(self, name)


class Value(Traced):
    """A number of one score's formula. `nonnegative`: an int that is known to be 0 or more."""

    __slots__ = ("trace", "text", "kind", "nonnegative")
    __array_ufunc__ = None  # so that NumPy's numbers leave operators to this class

    def __init__(self, trace, text, kind, nonnegative=False):
        self.trace = trace
        self.text = text
        self.kind = kind
        self.nonnegative = nonnegative

    def __repr__(self):
        return f"<{DTYPES[self.kind]} {self.text}>"

    # What a tensor of rank 0 has.
    shape = torch.Size([])
    ndim = 0
    requires_grad = False
    is_cuda = False

    @property
    def dtype(self):
        return DTYPES[self.kind]

    @property
    def device(self):
        return self.trace.device

    def dim(self):
        return 0

    def numel(self):
        return 1

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def is_floating_point(self):
        return self.kind == FLOAT

    def __getitem__(self, index):
        if index is Ellipsis or index == ():
            return self
        raise refuse("indexing a traced value", "indexing a captured tensor: table[h, q_idx]")

    def __neg__(self):
        if self.kind == BOOL:
            raise refuse("minus of a bool", "~x, or x.to(torch.int32)")
        return self.trace.emit("-" + self.text, self.kind)

    def __pos__(self):
        return self

    def __abs__(self):
        return self if self.nonnegative else self.trace.emit("abs(" + number(self).text + ")", number(self).kind, True)

    def __invert__(self):
        if self.kind == FLOAT:
            raise refuse("~ of a float", "a comparison first: ~(x > 0)")
        return self.trace.emit(("!" if self.kind == BOOL else "~") + self.text, self.kind)


_BRANCHES = "a Python branch on a traced value (if, while, and, or, not, min, max)"
# What needs a number that does not exist while tracing, with what works instead.
_REFUSED = {
    "__bool__": (_BRANCHES, _BRANCH),
    "__index__": (
        "a traced value as an index of a Python list, a range or an array of NumPy's",
        "a tensor in place of the list: torch.as_tensor(table)[h]",
    ),
    "__int__": ("int() of a traced value", "x.to(torch.int32)"),
    "__float__": (
        "float() of a traced value, or a function of Python's math",
        "x.to(torch.float32), and torch's functions: torch.tanh for math.tanh",
    ),
    "__iter__": ("iteration over a traced value", "a loop over a Python range, with the value inside"),
    "__len__": ("len() of a traced value", "a Python number from outside the modifier"),
    "__contains__": ("'in' with a traced value", "(x == a) | (x == b)"),
    "__setitem__": ("a write into a traced value", "torch.where(condition, new, old)"),
    "item": (".item() of a traced value", "the value itself"),
    "tolist": (".tolist() of a traced value", "the value itself"),
}


def _refusing(operation, instead):
    def method(self, *_):
        raise refuse(operation, instead)

    return method


for _name, _words in _REFUSED.items():
    setattr(Value, _name, _refusing(*_words))


def literal(trace, x) -> Value:
    """A Python number as text that reads back as the same f32, i32 or bool."""
    if torch.compiler.is_compiling():  # a number that Dynamo holds as a symbol is guarded, and has its value
        from torch.fx.experimental.symbolic_shapes import guard_scalar

        x = guard_scalar(x)
    if isinstance(x, bool):
        return Value(trace, "true" if x else "false", BOOL)
    if isinstance(x, int):
        if -2147483648 <= x <= 2147483647:
            return Value(trace, str(x) if x >= 0 else "(" + str(x) + ")", INT, x >= 0)
        return literal(trace, float(x))
    return Value(trace, float_text(x), FLOAT)


def lift(trace, x) -> Value:
    """An operand beside a symbol, as a symbol."""
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float)):
        return literal(trace, x)
    if isinstance(x, torch.Tensor):
        return trace.load_single(x)
    if type(x).__module__ == "numpy" and len(x.shape) > 0:
        raise refuse(f"an array of NumPy's of shape {list(x.shape)}", "torch.as_tensor of it, and its indices")
    if hasattr(x, "shape") and len(x.shape) > 0:
        raise refuse(
            f"a part of shape {list(x.shape)} of a captured tensor as a number",
            f"all of its indices: table[...] with {len(x.shape)} more",
        )
    if hasattr(x, "item"):  # numpy's numbers
        return literal(trace, x.item())
    raise refuse(f"a {type(x).__name__} in arithmetic", "numbers and tensors")


def number(v: Value) -> Value:
    """A bool as i32, as torch promotes it beside an int."""
    return v.trace.emit("i32(" + v.text + ")", INT, True) if v.kind == BOOL else v


def real(v: Value) -> Value:
    """The value as f32."""
    return v.trace.emit("f32(" + v.text + ")", FLOAT) if v.kind != FLOAT else v


def truth(v: Value) -> Value:
    return v.trace.emit("bool(" + v.text + ")", BOOL) if v.kind != BOOL else v


def cast(v: Value, kind: str) -> Value:
    if v.kind == kind:
        return v
    if kind == FLOAT:
        return real(v)
    if kind == BOOL:
        return truth(v)
    return v.trace.emit("i32(" + v.text + ")", INT, v.kind == BOOL)


def common(a: Value, b: Value):
    """Both as the type that torch promotes them to: bool below int below float."""
    if a.kind == b.kind:
        return a, b
    if FLOAT in (a.kind, b.kind):
        return real(a), real(b)
    return number(a), number(b)


class Rows(Traced):
    """A captured tensor of which only some indices are given yet: interval = intervals[i]; interval[0]."""

    __slots__ = ("trace", "tensor", "given", "shape")

    def __init__(self, trace, tensor, given, shape):
        self.trace = trace
        self.tensor = tensor  # the captured tensor
        self.given = given  # per dimension: an index, or None if it is open
        self.shape = shape  # of the open dimensions

    def __getitem__(self, index):
        return self.trace.load(self.tensor, index, self.given)

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(self.shape[0])])

    def unbind(self, dim=0):
        if dim not in (0, -len(self.shape)):
            return [self[(slice(None),) * (dim % len(self.shape)) + (i,)] for i in range(self.shape[dim])]
        return [self[i] for i in range(self.shape[0])]

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def dim(self):
        return len(self.shape)

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def dtype(self):
        return self.tensor.dtype

    def __bool__(self):
        raise refuse(_BRANCHES, _BRANCH)

    def __getattr__(self, name):
        if name in Rows.__slots__:  # Dynamo looks for them before __init__ has set them
            raise AttributeError(name)
        if len(self.shape) != 1 and not name.startswith("__"):
            raise refuse(f".{name} of a part of shape {list(self.shape)} of a captured tensor", "all but one of its indices")
        return super().__getattr__(name)

"""From modifiers of every kind to formula texts with the tensors that they capture.

A modifier is a Python function of (score, b, h, q_idx, kv_idx), a mask one of (b, h, q_idx, kv_idx), a derivative one
of (grad, score, b, h, q_idx, kv_idx); or a formula text, a fovea.Program, or a callback (graph, score, tensors) as
Transformer Engine takes."""

import inspect
import types

import torch

from .._arrays import FROM_NUMPY
from .._core import InvalidArgument
from .._request import (
    check_callback_scalars,
    check_captured_name,
    check_modifiers,
    no_modifier,
    no_number,
    one_is_a_callback,
    program_line,
    scalars_of,
    substitute,
)
from ..program import Program, combined, texts_of
from ..recorder import is_callback, record
from .errors import about
from .trace import Trace, in_double, run
from .values import BOOL, FLOAT

DIRECT = {getattr(torch, name): ours for name, ours in FROM_NUMPY.items()}  # types that formulas load
KINDS = (FLOAT, BOOL, FLOAT)  # what score_mod, mask_mod and bprop give


class Formulas:
    """Texts, and the captured tensors in the order of their names. `uses` has a letter for each of their dimensions: the position
    that alone indexes it, "-" for anything else, "?" if the text has to be asked; `scalars` are (name, type)."""

    __slots__ = ("mod", "mask", "bprop", "names", "tensors", "uses", "scalars", "values", "slots", "block")

    def __init__(self):
        self.mod = self.mask = self.bprop = ""
        self.names, self.tensors, self.uses = [], [], []
        self.scalars, self.values = [], []
        self.block = ""  # indices of a score's block in the tables of torch's BlockMask (block_tables.py)
        self.slots = []  # the numbers of the captured tensors among those of the steps (steps.py)

    def text(self) -> str:
        """All but the tensors and values, as one string: what an operator of torch carries, and what plans are looked up by."""
        captured = ";".join([f"{name} {use}" for name, use in zip(self.names, self.uses)])
        scalars = ";".join([f"{name}:{kind}" for name, kind in self.scalars])
        return f"{self.mod}\n{self.mask}\n{self.bprop}\n{captured}\n{scalars}\n{self.block}"

    @classmethod
    def parse(cls, text) -> "Formulas":
        """The inverse of text()."""
        out = cls()
        out.mod, out.mask, out.bprop, captured, scalars, out.block = text.split("\n")
        out.names, out.uses = [[item.split(" ")[i] for item in captured.split(";") if item] for i in (0, 1)]
        out.scalars = [tuple(item.split(":")) for item in scalars.split(";") if item]
        return out


def names_of(call):
    """What gradients are called, in the order of a call's tensors."""
    return ["q", "k", "v", "sink", *Formulas.parse(call.formulas).names]


def traced(score_mod=None, mask_mod=None, bprop=None, *, tensors=None, scalars=None, like=None) -> Formulas:
    """`like` is the query: captured tensors must be on its device."""
    modifiers = (score_mod, mask_mod, bprop)
    check_modifiers(*modifiers, {"tensors": (tensors, ""), "scalars": (scalars, "")})
    out, trace = Formulas(), Trace(like)
    found = combined(modifiers, lambda name, modifier: formulas_of(trace, name, modifier))
    out.mod, out.mask, out.bprop = [text or "" for text in found]
    take_captured(out, trace, like)
    programs = [x for x in modifiers if isinstance(x, Program)]
    if tensors or scalars or programs:
        take_named(out, programs, any([isinstance(x, str) for x in modifiers]), tensors or {}, scalars or {}, like)
    return out


class Biased:
    """A bias, and the modifier that reads the scores with the bias added: `text` is the formula of `score` and the tensor
    `_bias`, `then` a modifier of any kind, or None."""

    def __init__(self, text, tensor, then):
        self.text, self.tensor, self.then = text, tensor, then

    def before(self, formulas, like):
        """Adds the bias to the formulas of `then`."""
        captured = declared(formulas) if isinstance(self.then, str) else None
        formulas.mod = self.text if self.then is None else biased(self.text, formulas.mod, captured, in_double(like))
        formulas.bprop = formulas.bprop and biased(self.text, formulas.bprop, None, False)
        formulas.names.append("_bias")
        formulas.tensors.append(bindable(self.tensor, like, "the bias"))
        formulas.uses.append("?" * self.tensor.dim())


def declared(formulas):
    """(tensors, scalars) for the line of a Program that is only read and printed: extents have no say in that."""
    tensors = tuple((name, DIRECT[x.dtype], (1,) * x.dim()) for name, x in zip(formulas.names, formulas.tensors))
    return tensors, tuple(formulas.scalars)


@torch.compiler.assume_constant_result
def biased(first, then, captured, exact):
    """The formula `then` with the value of `first` as its score. A text of the caller's comes with what it captures: it is
    parsed here, since a stock formula such as softcap(3) reads the score without naming it."""
    if captured is not None:
        tensors, scalars = captured
        program = Program(program_line(then, tensors=tensors, scalars=scalars))
        then = program.texts(exact)[0]
    return f"let _biased = {first}; " + substitute(then, {"score": "_biased"})


def take_captured(out, trace, like):
    for i, tensor in enumerate(trace.tensors):
        out.names.append("_c" + str(i))
        out.tensors.append(bindable(tensor, like))
    out.uses += trace.uses()


def one_line(text):
    return " ".join(text.split())


def formulas_of(trace, name, modifier):
    """(mod, mask, bprop) of one modifier."""
    if not isinstance(modifier, (str, Program)):
        kind, leaves = _RESULTS[name]
        modifier = run(trace, checked(modifier, name), kind, *leaves)
    return texts_of(name, one_line(modifier) if isinstance(modifier, str) else modifier, trace.in_double)


def take_named(out, programs, has_text, tensors, scalars, like):
    """What texts and Programs capture by name."""
    for name, value in scalars.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise no_number(name, value)
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(f"tensors[{name!r}]: must be a torch.Tensor, got {type(tensor).__name__}")
    for name, value in scalars_of(programs, has_text, tensors, scalars).items():
        check_captured_name(name)
        out.scalars.append((name, "i32" if isinstance(value, int) else "f32"))
        out.values.append(float(value))
    for name, tensor in tensors.items():
        check_captured_name(name)
        out.names.append(name)
        out.tensors.append(bindable(tensor, like, name))
        out.uses.append("?" * tensor.dim())


def bindable(tensor, like, name=None):
    """The tensor as the library takes it: on the query's device, of a type that formulas load."""
    if tensor.layout != torch.strided:
        raise about(
            tensor,
            InvalidArgument(f"{name or 'a captured tensor'}: {tensor.layout} must be torch.strided; to_dense() makes it so"),
        )
    if like is not None and tensor.device != like.device:
        if tensor.dim() != 0 or tensor.device.type != "cpu":
            raise about(
                tensor,
                InvalidArgument(
                    f"{'a captured tensor' if name is None else name} of shape {list(tensor.shape)} is on "
                    f"{tensor.device}, the query on {like.device}: move it there"
                ),
            )
        tensor = tensor.to(like.device)  # as torch allows for numbers on the CPU
    dtype = tensor.dtype
    if dtype in DIRECT and dtype != torch.float64:
        return tensor
    if dtype == torch.float64:
        return tensor if like is not None and like.dtype == torch.float64 else tensor.float()
    if dtype.is_floating_point:
        return tensor.float()
    return tensor.to(torch.int64 if dtype in (torch.uint32, torch.uint64) else torch.int32)


# The kind of what each gives, and the leaves that it takes before positions.
_RESULTS = {"score_mod": (FLOAT, ["score"]), "mask_mod": (BOOL, []), "score_mod_bprop": (FLOAT, ["grad", "score"])}
_TAKES = {
    "score_mod": "(score, b, h, q_idx, kv_idx)",
    "mask_mod": "(b, h, q_idx, kv_idx)",
    "score_mod_bprop": "(grad, score, b, h, q_idx, kv_idx)",
}


def checked(function, name):
    if not callable(function):
        raise no_modifier(name, function, "a function, a formula text or a fovea.Program")
    if isinstance(function, types.FunctionType) and not torch.compiler.is_compiling():
        code, count = function.__code__, _TAKES[name].count(",") + 1
        least = code.co_argcount - len(function.__defaults__ or ())
        if least > count or (code.co_argcount < count and not code.co_flags & inspect.CO_VARARGS):
            names = ", ".join(code.co_varnames[: code.co_argcount])
            raise InvalidArgument(f"{name}: takes ({names}); must take {_TAKES[name]}")
    return function


# Callbacks (graph, score, tensors) as Transformer Engine takes them: run once per call against Fovea's recorder. Under
# torch.compile they run once per compilation, on stand-ins that have a shape and a type.


def record_callbacks(score_mod, bprop, mask_mod, named, sizes, like) -> Formulas:
    """named: {"tensors": ..., "bprop_tensors": ..., "scalars": ...}; sizes: (B, H, Sq, Skv), or None if packed."""
    tensors, bprop_tensors = named["tensors"], named["bprop_tensors"]
    captured = {"tensors": (tensors, "score_mod"), "bprop_tensors": (bprop_tensors, "score_mod_bprop")}
    check_modifiers(score_mod, mask_mod, bprop, captured)
    check_callback_scalars(named["scalars"])
    if not is_callback(score_mod) or (bprop is not None and not is_callback(bprop, (3, 4))):
        raise one_is_a_callback()
    tensors, bprop_tensors = tensors or {}, bprop_tensors or {}
    out = Formulas()
    if torch.compiler.is_compiling():
        captures = recorded_once(out, score_mod, bprop, tensors, bprop_tensors, sizes)
    else:
        found = record(score_mod, bprop, tensors=tensors, bprop_tensors=bprop_tensors or None, sizes=sizes)
        out.mod, out.bprop = found.mod, found.bprop or ""
        captures = [(capture.name, capture.tensor) for capture in found.captures]
    if mask_mod is not None:  # before the others: names of what a trace captures are numbered from 0
        trace = Trace(like)
        out.mask = formulas_of(trace, "mask_mod", mask_mod)[1]
        take_captured(out, trace, like)
    for name, tensor in captures:
        tensor = bindable(tensor, like, name)
        out.names.append(name)
        out.tensors.append(tensor)
        out.uses.append("?" * tensor.dim())
    return out


class StandIn:
    """The shape and type of a tensor, which is all that the recorder reads, and its number."""

    def __init__(self, at, shape, dtype):
        self.at, self.shape, self.dtype = at, shape, dtype


def recorded_once(out, score_mod, bprop, tensors, bprop_tensors, sizes):
    known = []
    first, second = entries(tensors, known), entries(bprop_tensors, known)
    sizes = None if sizes is None else fixed(sizes)
    out.mod, out.bprop, captures = texts(score_mod, bprop, first, second, sizes)
    return [(name, known[at]) for name, at in captures]


def entries(tensors, known):
    """(key, number of the tensor, shape, type) of each: constants that Dynamo can hand on."""
    out = []
    for key, tensor in tensors.items():
        at = next((i for i, other in enumerate(known) if other is tensor), len(known))
        if at == len(known):
            known.append(tensor)
        out.append((key, at, fixed(tensor.shape), str(tensor.dtype)))
    return tuple(out)


def fixed(sizes):
    """Sizes that Dynamo holds as symbols have their values: a recorder compares the extents of tensors with them."""
    from torch.fx.experimental.symbolic_shapes import guard_scalar  # which needs SymPy: only programs that are compiled do

    return tuple([guard_scalar(n) for n in sizes])


@torch.compiler.assume_constant_result
def texts(score_mod, bprop, first, second, sizes):
    made = {at: StandIn(at, shape, dtype) for _, at, shape, dtype in (*first, *second)}
    given = [{key: made[at] for key, at, *_ in group} for group in (first, second)]
    found = record(score_mod, bprop, tensors=given[0], bprop_tensors=given[1] or None, sizes=sizes)
    for capture in found.captures:
        if not isinstance(capture.tensor, StandIn):
            raise InvalidArgument(
                f"score_mod: under torch.compile the tensor {capture.name!r} of a callback must come in score_mod_tensors"
            )
    return (found.mod, found.bprop or "", tuple((capture.name, capture.tensor.at) for capture in found.captures))

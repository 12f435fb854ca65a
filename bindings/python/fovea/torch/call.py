"""One call of attention without q, k, v and captured tensors: which attention it is, and the small values that it binds. Made
by the public functions, or from the arguments of an operator of torch.library. Also what the library is told of its tensors
(sizes and strides), the layout of outputs, and the signatures by which plans are looked up."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .. import _core, _request
from .._request import AXES, by_axes

DEFAULT_SCALE = float("inf")  # stands for 1 / sqrt(d); no call can have this scale


# The tensors of a call beside q, k, v, sinks and captured ones.
BOUND = ("seed", "q_lens", "k_lens", "q_starts", "k_starts", "q_offsets", "k_offsets")
LENGTHS = ("q_lengths", "k_lengths", "q_starts", "k_starts", "q_offsets", "k_offsets")  # as the library names them


@dataclasses.dataclass(slots=True)
class Call:
    formulas: str = "\n" * 5  # modifiers.Formulas.text()
    values: tuple = ()  # of scalars
    layout: str = "bhsd"  # bhsd, bshd, sbhd, thd
    engine: str = ""  # "": the fastest
    wants: str = ""  # gradients that a backward will be asked for: "q,k,v,sink,_c0"
    outputs: tuple = ()  # names of fovea._core.OUTPUTS that the caller asked for, in that order
    flags: tuple = ()  # names of fovea._options.FLAGS that are set
    scale: float = DEFAULT_SCALE
    dropout: float = 0.0
    max_q: int = 0  # thd: the longest sequences
    max_k: int = 0
    q_offset: int = 0
    k_offset: int = 0
    b_offset: int = 0  # of a part of the batch: the first sequence
    h_offset: int = 0  # of a part of the heads: the first one,
    h_global: int = 0  # and how many there are; 0: all are here
    seed: Optional[Tensor] = None  # of dropout: one int64 on the query's device
    q_lens: Optional[Tensor] = None  # i32 [B]
    k_lens: Optional[Tensor] = None
    q_starts: Optional[Tensor] = None  # i32 [B + 1]
    k_starts: Optional[Tensor] = None
    q_offsets: Optional[Tensor] = None  # i32 [B]
    k_offsets: Optional[Tensor] = None
    parts: bool = False  # o and the gradients of q, k, v are f32: they will be added to others

    def key(self):
        """What a plan may depend on; values and lengths are bound."""
        return (
            self.formulas,
            self.layout,
            self.engine,
            self.wants,
            self.outputs,
            self.flags,
            self.dropout,
            self.max_q,
            self.max_k,
            self.q_lens is None,
            self.k_lens is None,
            None if self.q_starts is None else self.q_starts.shape[0],
            self.k_starts is None,
            self.q_offsets is None,
            self.k_offsets is None,
            self.q_offset != 0,
            self.k_offset != 0,
            self.b_offset != 0,
            self.h_offset != 0,
            self.h_global,
            self.parts,
        )

    def written(self):
        """The outputs that the library writes: a backward needs lse."""
        return ("lse", *self.outputs) if self.wants and "lse" not in self.outputs else self.outputs

    def with_numbers(self, scale, values):
        """Itself, or the same with another scale and other values of scalars."""
        if self.scale == scale and self.values == values:
            return self
        return dataclasses.replace(self, scale=scale, values=values)

    def without_tensors(self):
        """For the table of plans, which must not keep the caller's tensors alive."""
        return dataclasses.replace(self, **dict.fromkeys(BOUND))

    def tensors(self):
        """The tensors that a backward needs unchanged: those of BOUND."""
        return self.seed, self.q_lens, self.k_lens, self.q_starts, self.k_starts, self.q_offsets, self.k_offsets

    def lengths(self):
        """(name in the library, tensor) of what says how long sequences are and where they begin."""
        if self.q_lens is None and self.k_lens is None and self.q_starts is None:
            if self.q_offsets is None and self.k_offsets is None:
                return ()
        return [(name, x) for name, x in zip(LENGTHS, self.tensors()[1:]) if x is not None]


# --- its tensors ---

NAMES = ("query", "key", "value")


class BoundCall(NamedTuple):
    """A call with its tensors; of a backward, and of what differentiates one, also the outputs of the forward and the gradients
    that come in."""

    call: Call
    q: Tensor
    k: Tensor
    v: Tensor
    sink: Optional[Tensor] = None
    captured: Sequence = ()
    o: Optional[Tensor] = None
    lse: Optional[Tensor] = None
    grad_o: Optional[Tensor] = None
    grad_lse: Optional[Tensor] = None


def sizes_of(call, q, k, v) -> _request.Sizes:
    packed = None if call.layout != "thd" else (call.q_starts.shape[0] - 1, call.max_q, call.max_k)
    return _request.sizes_of(call.layout, [x.shape for x in (q, k, v)], packed, NAMES)


def strides_word(x, layout):
    """Strides for a problem line; None if they are the default of the line."""
    strides, extents = by_axes(x.stride(), layout, 0), by_axes(x.shape, layout, 1)
    dense, step = [0] * 4, 1
    for axis in (3, 1, 2, 0) if layout == "thd" else (3, 2, 1, 0):
        dense[axis] = step
        step *= extents[axis]
    return None if layout != "thd" and strides == tuple(dense) else strides


def dense_like(q, last=None):
    """An empty tensor with q's shape and order of dimensions in memory. With `last` it is an output with that last extent,
    whose last stride is 1 whatever q's is: what flex_attention and SDPA return, so that transposing back costs nothing."""
    if last is None or is_like_its_output(q, last):
        return torch.empty_like(q)
    shape = (*q.shape[:-1], last)
    order = sorted(range(len(shape) - 1), key=lambda i: (q.stride(i), -i), reverse=True)
    return torch.empty_permuted(shape, (*order, len(shape) - 1), dtype=q.dtype, device=q.device)


def zeros_like(x):
    """Zeros of the shape of x, expanded from one element."""
    return torch.zeros((), dtype=x.dtype, device=x.device).expand(x.shape)


def is_like_its_output(q, last) -> bool:
    return last == q.shape[-1] and q.stride(-1) == 1


def rows_shape(layout, q):
    """The shape of lse and of row maxima."""
    if layout == "thd":
        return (q.shape[1], q.shape[0])
    b, h, s, _ = by_axes(q.shape, layout, 0)
    return (b, h, s)


def heads_of(layout, q):
    return q.shape[AXES[layout][1]]


def rows_dtype(q):
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def part_dtype(call, q):
    """The type of o and of the gradients of q, k and v."""
    return rows_dtype(q) if call.parts else q.dtype


PLAIN = (torch.Tensor, torch.nn.Parameter)


class AskingViewer:
    """In place of fovea._core.Viewer for versions of torch without DLPack's table."""

    @staticmethod
    def signature(tensors, with_gradients):
        out = []
        for x in tensors:
            if type(x) not in PLAIN or x.layout != torch.strided or x.is_neg():
                return None
            out += (x.shape, x.stride(), x.dtype, x.device, with_gradients and x.requires_grad)
            out.append(next(i for i, other in enumerate(tensors) if other is x))
        return tuple(out)


def best_viewer():
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        return AskingViewer
    try:
        return _core.Viewer(table, PLAIN, torch.Tensor.is_neg)
    except _core.InvalidArgument:  # a later major version of DLPack
        return AskingViewer


VIEWER = best_viewer()


def resolved(x):
    """The tensor with its values in memory: x.conj().imag shares the memory of x, which has the other sign."""
    return x.resolve_neg() if x is not None and x.is_neg() else x

"""One call of attention without q, k, v and captured tensors: which attention it is, and the small things that it binds.
Made by the public functions, or from the arguments of an operator of torch.library."""

import dataclasses
from typing import Optional

from torch import Tensor

DEFAULT_SCALE = float("inf")  # stands for 1 / sqrt(d); no call can have this scale


# The tensors of a call beside q, k, v, sinks and captured ones.
BOUND = ("seed", "q_lens", "k_lens", "q_starts", "k_starts", "q_offsets", "k_offsets")


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
        names = ("q_lengths", "k_lengths", "q_starts", "k_starts", "q_offsets", "k_offsets")
        return [(name, x) for name, x in zip(names, self.tensors()[1:]) if x is not None]

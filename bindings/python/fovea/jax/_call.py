"""One call, put together: arguments checked, operands in order with their roles, then run.

Used by attention(), dot_product_attention() and context_attention(). Every mistake that shapes, types or options show is
raised here, while JAX still traces."""

from __future__ import annotations

import contextvars
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._core import InvalidArgument
from .._options import Handed, flags_of, outputs_of
from .._request import Sizes, both_masks, check_sinks, dropout_of, engine_of, one_of, scale_of, substitute
from . import _derivative, _partition
from ._captures import Captures
from ._inputs import (
    SequenceDescriptor,
    in_shard_map,
    is_zero,
    made_alike,
    packed_sequences,
    scalar,
    seed_words,
    tensors_of,
    vector,
    with_own_type,
)
from ._modifiers import GivenModifiers, formulas
from ._rewrite import without_b_offset
from ._spec import CapturedArray, Spec, problem_line, sizes_of


class CallBuilder:
    def __init__(self, layout: str, q, k, v, packed: tuple = (None, None, None, None)):
        tensor_layout, self._operands = tensors_of(layout, q, k, v)
        of_double = next(iter(self._operands.values())).dtype == jnp.float64
        self._captures = Captures(reals=jnp.float64 if of_double else jnp.float32)
        self._extra_masks: list[str] = []
        starts, longest = packed_sequences(tensor_layout, *packed)
        self._operands.update(starts)
        self._spec = Spec(layout=tensor_layout, max_q=longest[0], max_k=longest[1])
        roles = tuple(self._operands)
        self.sizes: Sizes = sizes_of(self._spec.replace(operands=roles), list(self._operands.values()))

    # --- what is captured ---

    def keep_names(self, given: GivenModifiers) -> None:
        """Reserves the names that formulas use. Called before anything is captured."""
        given.check()
        self._captures.avoid(given.names())

    def modify(
        self, given: GivenModifiers, *, bias=None, descriptor: SequenceDescriptor | None = None, masks=(), leaves=None
    ) -> None:
        """score_mod and mask_mod; bias and segments are formulas too, and `masks` are texts of positions."""
        leaves = dict(leaves or {})
        if descriptor is not None and descriptor.segment_ids is not None:
            leaves.update(self._segments(descriptor))
        if bias is not None:
            bias = jnp.asarray(bias)
            bias = bias.astype(jnp.float32) if bias.dtype == jnp.bool_ else bias  # 0 or 1, as jax.nn adds it
            leaves["score"] = f"(score + {self._dense('bias', bias)})"
        self._extra_masks += [substitute(text, leaves) for text in masks]
        s = self.sizes
        mod, mask, bprop = formulas(given, self._captures, (s.b, s.h, s.sq, s.skv), leaves)
        self._spec = self._spec.replace(mod=mod, mask=both_masks(*self._extra_masks, mask), bprop=bprop)

    def number(self, name: str, value) -> None:
        """A scalar for formulas that are not the caller's; before modify()."""
        self._captures.reserve(name)
        self._captures.add_scalar(value, name)

    def per_sequence(self, name: str, value, argument: str) -> str:
        """The load of one number per sequence, for formulas that are not the caller's; before modify()."""
        self._captures.reserve(name)
        return self._captures.load(vector(argument, value, self.sizes.b), [self._row("b")], name)

    def positions(self, name: str, value, word: str) -> str:
        """The load of one position per row ("q") or column ("k"); before modify()."""
        self._captures.reserve(name)
        return self._captures.load(value, [word], name)

    def mask_text(self, text: str) -> None:
        """One more condition; before modify()."""
        self._extra_masks.append(text)

    def mask_array(self, name: str, mask) -> None:
        """A dense mask, [B|1, H|1, Sq|1, Skv|1] of bool; before modify()."""
        mask = jnp.asarray(mask)
        if mask.dtype != jnp.bool_:
            raise InvalidArgument(f"{name}: {mask.dtype}; must be bool (true: kept)")
        self._extra_masks.append(self._dense(name, mask))

    def _dense(self, name: str, array) -> str:
        """The load of an array that broadcasts to [B, H, Sq, Skv]: by rows, whatever positions these have."""
        array = jnp.asarray(array)
        s = self.sizes
        full = (s.b, s.h, s.sq, s.skv)
        if self._spec.layout == "thd":
            raise InvalidArgument(f"{name}: has no meaning with layout thd; capture an array in score_mod instead")
        if array.ndim != 4 or any(n not in (1, m) for n, m in zip(array.shape, full)):
            raise InvalidArgument(f"{name}: shape {list(array.shape)}; must broadcast to [B, H, Sq, Skv], here {list(full)}")
        indices = ["0" if n == 1 and m != 1 else self._row(w) for n, m, w in zip(array.shape, full, "bhqk")]
        return self._captures.load(array, indices)

    def _segments(self, descriptor: SequenceDescriptor) -> dict[str, str]:
        """A mask of equal segments; with positions, also what stands for q and k in modifiers."""
        s = self.sizes
        if self._spec.layout == "thd":
            raise InvalidArgument("segment_ids: have no meaning with layout thd, whose sequences are given by cu_seqlens")
        leaves = {}
        ids = [self._rows("segment_ids", x, n, w) for x, n, w in zip(descriptor.segment_ids, (s.sq, s.skv), "qk")]
        self._extra_masks.append(f"{ids[0]} == {ids[1]} && {ids[0]} != 0")
        if descriptor.segment_pos is not None:
            for x, n, word in zip(descriptor.segment_pos, (s.sq, s.skv), "qk"):
                leaves[word] = f"({self._rows('segment_pos', x, n, word)})"
        return leaves

    def _rows(self, name: str, array, length: int, word: str) -> str:
        array = jnp.asarray(array)
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise InvalidArgument(f"{name}: {array.dtype}; must be int32")
        array = array.astype(jnp.int32)
        if array.shape != (self.sizes.b, length):
            raise InvalidArgument(f"{name}: shape {list(array.shape)}; must be [B, S], here {[self.sizes.b, length]}")
        return self._captures.load(array, [self._row("b"), self._row(word)])

    # --- what is bound ---

    def offsets(self, **values) -> None:
        """What is added to the coordinates that modifiers see: b, h, q, k; the last two also per sequence.

        Before anything is captured."""
        for word, value in values.items():
            name = f"{'kv' if word == 'k' else word}_offset"
            if is_zero(value):
                continue
            if word in ("q", "k") and jnp.ndim(value):
                self._operands[f"{word}_offsets"] = vector(name, value, self.sizes.b)
            else:
                self._operands[f"{word}_offset"] = scalar(name, value, jnp.int32)

    def _row(self, word: str) -> str:
        """A coordinate inside this call: the one that modifiers see minus its offset."""
        if (offset := self._operands.get(f"{word}_offset")) is not None:
            return f"({word} - {self._captures.add_scalar(offset).name})"
        if (offsets := self._operands.get(f"{word}_offsets")) is not None:
            return f"({word} - {self._captures.load(offsets, [self._row('b')])})"
        return word

    def lengths(
        self,
        q_lengths,
        kv_lengths,
        descriptor: SequenceDescriptor | None = None,
        names: tuple[str, str] = ("q_lengths", "kv_lengths"),
    ) -> None:
        if descriptor is not None and descriptor.seqlens is not None:
            if q_lengths is not None or kv_lengths is not None:
                raise InvalidArgument("q_lengths, kv_lengths: given, but sequence_descriptor has lengths, too")
            q_lengths, kv_lengths = descriptor.seqlens
        for role, name, value in zip(("q_lengths", "k_lengths"), names, (q_lengths, kv_lengths)):
            if value is not None:
                self._operands[role] = vector(name, value, self.sizes.b)

    def values(self, *, scale=None, sink=None) -> None:
        if scale is not None:
            if not isinstance(scale, jax.Array):
                scale_of(scale)
            self._operands["scale"] = scalar("scale", scale, self._captures.reals)
        if sink is not None:
            sink = jnp.asarray(sink)
            check_sinks(sink.shape, self.sizes.h, "sink")
            self._operands["sink"] = sink.astype(self._captures.reals)

    def dropout(self, rate: float, seed, rng: str = "portable") -> None:
        one_of("dropout_rng", rng, ("portable", "engine"))
        if not isinstance(rate, (int, float, np.number)):
            raise InvalidArgument(f"dropout_rate: must be a number that is not traced, got {type(rate).__name__}")
        if not rate:
            return
        dropout_of(rate, "dropout_rate")
        if seed is None:
            raise InvalidArgument(f"dropout_rate={rate}: needs dropout_seed, a number, a PRNG key or uint32[2]")
        self._operands["seed"] = seed_words(seed)
        self._spec = self._spec.replace(dropout=float(rate), rng=rng)

    def options(self, handed: Handed, **fields) -> None:
        engine = engine_of(handed.engine) or None
        own = {"outputs": ("o", *outputs_of(handed)), "flags": flags_of(handed), "engine": engine}
        self._spec = self._spec.replace(**own, **fields)

    # --- run ---

    def finished(self) -> tuple[Spec, list[jax.Array]]:
        """The Spec and its operands."""
        operands = dict(self._operands)
        for t in self._captures.tensors:
            operands[f"tensor:{t.name}"] = t.value
        for x in self._captures.scalars:
            operands[f"scalar:{x.name}"] = x.value
        spec = self._spec.replace(
            operands=tuple(operands),
            tensors=tuple(CapturedArray(t.name, tuple(t.axes)) for t in self._captures.tensors),
            scalars=tuple((x.name, x.kind) for x in self._captures.scalars),
        )
        arrays = made_alike([with_own_type(x) for x in operands.values()])
        _check_problem(spec, arrays)
        return spec, arrays

    def run(self, checkpoint_name: str | None = None) -> tuple[jax.Array, ...]:
        spec, arrays = self.finished()
        note(spec, arrays)
        function = _derivative.attend_compiled if in_shard_map(arrays[0]) else _derivative.attend
        attend = functools.partial(function, spec.replace(saved_as=checkpoint_name))
        return _partition.with_types(spec, attend, arrays)(*arrays)


def _check_problem(spec: Spec, arrays) -> None:
    """Raises what the library refuses while JAX traces, not when the program runs."""
    problem = _core.Problem(problem_line(spec, arrays, "forward"))
    if spec.engine is None:
        return
    if jax.default_backend() == "cpu":
        answer, reasons = _core.supported(problem, engine=spec.engine, device="cpu")
        if not answer:
            raise _core.Unsupported(f"engine {spec.engine} was asked for, but JAX runs on the CPU here: {reasons}")


# Set while explain() traces: CallBuilder.run() leaves its Spec and the shapes of its operands here.
seen: contextvars.ContextVar[list[tuple[Spec, list]] | None] = contextvars.ContextVar("seen", default=None)


def note(spec: Spec, operands) -> None:
    calls = seen.get()
    if calls is not None:
        calls.append((spec, [jax.core.ShapedArray(x.shape, x.dtype) for x in operands]))


def problem_lines(function, *args: Any, gpu: bool = False, **kwargs: Any) -> list[str]:
    """The problem lines of the calls in function(*args, **kwargs), which is traced and not run."""
    calls: list[tuple[Spec, list]] = []
    token = seen.set(calls)
    try:
        jax.eval_shape(lambda *a: function(*a, **kwargs), *args)
    finally:
        seen.reset(token)
    calls = [(without_b_offset(spec), avals) for spec, avals in calls] if gpu else calls
    return [
        problem_line(spec.replace(training=True, wanted=("q", "k", "v")), avals, "forward", gpu) for spec, avals in calls
    ]

"""The public functions: attention, everything that Fovea computes, under every transformation of JAX; explain; and
dot_product_attention, jax.nn's function with modifiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from .. import _core
from .._core import InvalidArgument
from .._options import Handed, Options, handed_of, takes
from .._request import window_mask
from ..program import Text
from ._call import CallBuilder, problem_lines
from ._inputs import SequenceDescriptor
from ._modifiers import GivenModifiers, Modifier

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes()
def attention(
    q: jax.Array,
    k: jax.Array | None = None,
    v: jax.Array | None = None,
    *,
    score_mod: Modifier | None = None,
    mask_mod: Modifier | None = None,
    score_mod_bprop: Modifier | None = None,
    score_mod_tensors: Mapping[str, Any] | None = None,
    score_mod_bprop_tensors: Mapping[str, Any] | None = None,
    mask_mod_tensors: Mapping[str, Any] | None = None,
    layout: str = "bshd",
    scale: float | jax.Array | None = None,
    bias: jax.Array | None = None,
    dense_mask: jax.Array | None = None,
    sink: jax.Array | None = None,
    sequence_descriptor: SequenceDescriptor | None = None,
    q_lengths: jax.Array | None = None,
    kv_lengths: jax.Array | None = None,
    cu_seqlens_q: jax.Array | None = None,
    cu_seqlens_kv: jax.Array | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    dropout_rate: float = 0.0,
    dropout_seed: int | jax.Array | None = None,
    dropout_rng: str = "portable",
    b_offset: int | jax.Array = 0,
    h_offset: int | jax.Array = 0,
    q_offset: int | jax.Array = 0,
    kv_offset: int | jax.Array = 0,
    global_heads: int | None = None,
    strict: bool = False,
    checkpoint_name: str | None = None,
    builtin_masks: tuple[str, ...] = (),
    **options: Unpack[Options],
) -> jax.Array | tuple[jax.Array, ...]:
    """Attention whose scores are modified by a formula: docs/jax.md.

    Args:
      q, k, v: arrays in `layout`: bshd [B, S, H, D], bhsd, sbhd, or thd [T, H, D] with cu_seqlens; heads of q
        are a multiple of those of k and v. Packed arrays stay packed: with bs3hd, sb3hd, t3hd `q` is [..., 3,
        H, D] alone; with bshd_bs2hd, sbhd_sb2hd, thd_t2hd `k` is [..., 2, H, D] and there is no `v`.
      score_mod: the modified score: a function (score, b, h, q, k) of scalars, a formula, a fovea.Program,
        or a callback (graph, score, tensors) as Transformer Engine takes. Arrays that a function closes
        over are operands and get gradients; numbers are bound per call.
      mask_mod: which scores are kept: a function (b, h, q, k) -> bool, a formula or a Program.
      score_mod_bprop: a hand-written derivative (grad, score, b, h, q, k) -> grad of score; by default it
        is derived.
      score_mod_tensors, mask_mod_tensors: what a formula captures, by name; a function gets them as one more
        argument.
      bias, dense_mask: [B|1, H|1, Sq|1, Skv|1]: added to the scaled scores before score_mod; true where a
        score is kept. Indexed by row and column of this call, whatever its offsets and positions.
      scale: of the scores; 1 / sqrt(D) by default. sink: [H], one more logit per head that joins only the sum.
      q_lengths, kv_lengths: [B], lengths of padded sequences; sequence_descriptor: lengths, segments or
        positions.
      cu_seqlens_q, cu_seqlens_kv: [B + 1] starts, with the longest lengths max_seqlen_q, max_seqlen_kv
        (layout thd).
      dropout_rate; dropout_seed: a number, a PRNG key or uint32[2]. dropout_rng: "portable" drops the same
        scores on every device and in every engine; "engine" lets an engine use its own generator, and is the
        only one that engine cudnn takes.
      b_offset, h_offset, q_offset, kv_offset: added to the coordinates that modifiers see; the last two also
        as [B]. global_heads: the number of heads that they see.
      checkpoint_name: a name for jax.checkpoint policies, given to o and lse.
      builtin_masks: formulas that are joined with mask_mod, for functions and modules built on this one.

    Returns o in the layout of q, or a tuple with the outputs that the return_ arguments ask for."""
    given = GivenModifiers.of(locals())
    handed = handed_of(attention, options)
    call = CallBuilder(layout, q, k, v, (cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv))
    call.keep_names(given)
    call.offsets(b=b_offset, h=h_offset, q=q_offset, k=kv_offset)
    if dense_mask is not None:
        call.mask_array("dense_mask", dense_mask)
    call.modify(given, bias=bias, descriptor=sequence_descriptor, masks=builtin_masks)
    call.lengths(q_lengths, kv_lengths, sequence_descriptor)
    call.values(scale=scale, sink=sink)
    call.dropout(dropout_rate, dropout_seed, dropout_rng)
    call.options(handed, strict=strict, h_global=global_heads or 0)
    results = call.run(checkpoint_name)
    return results[0] if len(results) == 1 else results


def explain(q, k=None, v=None, *, device: str | None = None, prove: bool = False, json: bool = False, **kwargs: Any) -> str:
    """Every engine's verdict on attention(q, k, v, **kwargs), forward and backward, with reasons.

    q, k, v may be arrays or jax.ShapeDtypeStruct. `device` is "cpu", "cuda:0", a known GPU such as "h200", or a JSON
    description; the default is where JAX runs. Nothing runs; `prove` builds plans to prove support."""
    tensors = [x for x in (q, k, v) if x is not None]
    device = device or {"cpu": "cpu"}.get(jax.default_backend(), "cuda:0")
    (line,) = problem_lines(attention, *tensors, gpu=device != "cpu", **kwargs)
    forward, backward = _core.problem_pair(line)
    engine = kwargs.get("engine")
    texts = [
        _core.explain(problem, engine=engine, device=device, prove=prove, json=json, partner=partner)
        for problem, partner in ((forward, backward), (backward, forward))
    ]
    return Text("[" + ",\n".join(texts) + "]" if json else "\n".join(texts))


# --- jax.nn.dot_product_attention's function, with modifiers ---


def dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    *,
    scale: float | jax.Array | None = None,
    is_causal: bool = False,
    query_seq_lengths: jax.Array | None = None,
    key_value_seq_lengths: jax.Array | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    score_mod: Modifier | None = None,
    mask_mod: Modifier | None = None,
    score_mod_bprop: Modifier | None = None,
    score_mod_tensors: Mapping[str, Any] | None = None,
    score_mod_bprop_tensors: Mapping[str, Any] | None = None,
    mask_mod_tensors: Mapping[str, Any] | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """jax.nn.dot_product_attention, argument for argument, and the modifiers of `fovea.jax.attention`.

    query is [B, T, N, H] or [T, N, H]. The order is scale, bias, score_mod, masks. `implementation` is None (Fovea's
    choice), the name of one of Fovea's engines, or "xla", which is jax.nn's own and takes no modifiers. The residual is
    lse, [B, T, N] in the type of `key`, without a gradient. A row with nothing kept gives zeros, and -inf as its residual."""
    given = GivenModifiers.of(locals())
    if implementation == "xla":
        if given != GivenModifiers():
            raise InvalidArgument('implementation="xla": is jax.nn\'s own attention, which takes no modifiers')
        return jax.nn.dot_product_attention(
            query,
            key,
            value,
            bias,
            mask,
            scale=scale,
            is_causal=is_causal,
            query_seq_lengths=query_seq_lengths,
            key_value_seq_lengths=key_value_seq_lengths,
            local_window_size=local_window_size,
            implementation="xla",
            return_residual=return_residual,
        )
    shape = jnp.shape(query)
    query, key, value = (_with_rank_four(x) for x in (query, key, value))
    call = CallBuilder("bshd", query, key, value)
    call.keep_names(given)
    if mask is not None:
        call.mask_array("mask", _with_rank_four(mask))
    window = window_mask(is_causal, local_window_size, name="local_window_size", unbounded=False)
    bias = None if bias is None else _with_rank_four(bias)
    call.modify(given, bias=bias, masks=[window] if window else [])
    names = ("query_seq_lengths", "key_value_seq_lengths")
    lengths = zip((query_seq_lengths, key_value_seq_lengths), (query.shape[1], key.shape[1]))
    # A length greater than the array's means all of it.
    call.lengths(*(x if x is None else jnp.clip(jnp.asarray(x), 0, n) for x, n in lengths), names=names)
    call.values(scale=scale)
    call.options(Handed(engine=implementation, return_lse=return_residual))
    results = call.run()
    o = results[0].reshape((*shape[:-1], value.shape[-1]))
    if not return_residual:
        return o
    residual = jnp.swapaxes(results[1], -1, -2).astype(key.dtype).reshape(shape[:-1])
    return o, jax.lax.stop_gradient(residual)


def _with_rank_four(array):
    array = jnp.asarray(array)
    return array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim < 4 else array

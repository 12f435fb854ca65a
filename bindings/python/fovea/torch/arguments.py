"""Arguments of the public functions, checked: tensors, the type that autocast asks for, the scale, the seed, lengths, offsets and
sinks."""

import operator

import torch
from torch.fx.experimental.symbolic_shapes import guard_scalar

from .. import _request
from .._core import InvalidArgument, Unsupported
from .._request import AXES, check_integers, check_per_sequence, check_starts, dropout_of, is_a_pair, is_packed
from ..recorder import is_function
from .call import DEFAULT_SCALE, NAMES, heads_of
from .modifiers import DIRECT
from .state import autocast_anywhere


FLOATS = tuple(dtype for dtype, name in DIRECT.items() if name in _request.FLOATS)


class IsDTensor(Unsupported):
    """For eager calls, which take such tensors to sharded.py."""


def check_tensors(q, k, v):
    for name, x in zip(NAMES, (q, k, v)):
        if not isinstance(x, torch.Tensor):
            raise InvalidArgument(f"{name}: must be a torch.Tensor, got {type(x).__name__}")
        if type(x).__name__ == "DTensor":
            raise IsDTensor(
                f"{name}: a DTensor {x.placements} is not taken here; fovea.torch.attention and flex_attention take one in "
                "eager mode, and context_parallel x.to_local()"
            )
        if x.layout != torch.strided:
            raise InvalidArgument(f"{name}: {x.layout} must be torch.strided; to_dense() makes it so")


def check_ranks(layout, q, k, v):
    for name, x in zip(NAMES, (q, k, v)):
        _request.check_rank(name, layout, x.shape)
        check_device(name, x, q)
    _request.check_types((q.dtype, k.dtype, v.dtype), FLOATS, NAMES)


def check_device(name, x, q):
    if x.device != q.device:
        raise InvalidArgument(f"{name}: on {x.device}, but the query is on {q.device}; move one of them")


def autocast(*tensors):
    """q, k and v in the type that torch.amp.autocast asks for, as scaled_dot_product_attention has them."""
    if not torch.compiler.is_compiling() and not autocast_anywhere():
        return tensors
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors)


def scale_of(scale) -> float:
    """The scale as a call has it."""
    if scale is None:
        return DEFAULT_SCALE
    if torch.compiler.is_compiling() and not isinstance(scale, str):  # the value, if Dynamo holds it as a symbol
        scale = guard_scalar(scale)
    return _request.scale_of(scale)


def is_learned(scale) -> bool:
    """Does it become part of the modifier? A tensor that wants a gradient does; in a compiled program every tensor, since its
    value can't be looked at."""
    if not isinstance(scale, torch.Tensor):
        return False
    return torch.compiler.is_compiling() or (scale.requires_grad and torch.is_grad_enabled())


def scaled(score_mod, bprop, scale):
    """score_mod of scores that are not scaled yet."""
    if scale.numel() != 1:
        raise InvalidArgument(f"scale: shape {list(scale.shape)}; must be a number, or a tensor of one element")
    if bprop is not None or not (score_mod is None or is_function(score_mod)):
        raise InvalidArgument(
            "scale: a learned one goes with a score_mod that is a function; in a formula it is a captured tensor, score * t[]"
        )
    if score_mod is None:
        return lambda score, b, h, q, k: score * scale
    return lambda score, b, h, q, k: score_mod(score * scale, b, h, q, k)


def seed_tensor(dropout_p, generator, seed, like):
    """One int64 on the query's device, or None if nothing is dropped. torch.manual_seed, checkpointing and torch.compile see
    an ordinary random operation."""
    if dropout_of(dropout_p) == 0.0:
        return None
    if seed is not None:
        if generator is not None:
            raise InvalidArgument("seed and generator: give one of them")
        if isinstance(seed, torch.Tensor):
            return seed.to(device=like.device, dtype=torch.int64).reshape(1)
        if not hasattr(seed, "__index__"):
            raise InvalidArgument(f"seed={seed!r}: must be an integer or a tensor of one")
        wrapped = (operator.index(seed) + 2**63) % 2**64 - 2**63  # the same 64 bits
        return torch.full((1,), wrapped, dtype=torch.int64, device=like.device)
    return torch.randint(-(2**63), 2**63 - 1, (1,), dtype=torch.int64, device=like.device, generator=generator)


def bind_lengths(call, q, seq_lens, cu_seqlens, max_seqlen):
    if is_packed(call.layout, (("cu_seqlens", cu_seqlens), ("max_seqlen", max_seqlen)), ("cu_seqlens",)):
        call.q_starts, call.k_starts = (integers(x, q, "cu_seqlens") for x in a_pair(cu_seqlens))
        check_starts("cu_seqlens", call.q_starts.shape, call.k_starts.shape)
        longest = max_seqlen if isinstance(max_seqlen, (tuple, list)) else (max_seqlen, max_seqlen)
        call.max_q, call.max_k = (longest_of(x, given) for x, given in zip((call.q_starts, call.k_starts), longest))
    if seq_lens is not None:
        call.q_lens, call.k_lens = (
            None if x is None else per_sequence(call, integers(x, q, "seq_lens"), q, "seq_lens") for x in a_pair(seq_lens)
        )


def a_pair(x):
    """(for queries, for keys)"""
    return tuple(x) if is_a_pair(x) else (x, x)


def per_sequence(call, numbers, q, name):
    count = q.shape[AXES[call.layout][0]] if call.q_starts is None else call.q_starts.shape[0] - 1
    check_per_sequence(name, numbers.shape, count)
    return numbers


def longest_of(starts, given) -> int:
    if given is not None:
        return int(given)
    return int((starts[1:] - starts[:-1]).max()) if starts.shape[0] > 1 else 0


def integers(x, q, name):
    if not isinstance(x, torch.Tensor):
        try:
            x = torch.tensor(x, device=q.device)
        except (TypeError, ValueError):
            raise InvalidArgument(f"{name}={x!r}: must be one integer per sequence") from None
    check_integers(name, not (x.is_floating_point() or x.dtype == torch.bool), x.dtype, x.shape)
    check_device(name, x, q)
    return x.to(torch.int32).contiguous()


def check_sinks(call, q, sinks):
    if not isinstance(sinks, torch.Tensor):
        raise InvalidArgument(f"sinks: must be a torch.Tensor, got {type(sinks).__name__}")
    _request.check_sinks(sinks.shape, heads_of(call.layout, q))
    check_device("sinks", sinks, q)


def bind_offsets(call, q, q_offset, k_offset):
    for name, offset in (("q_offset", q_offset), ("k_offset", k_offset)):
        if isinstance(offset, int):
            setattr(call, name, offset)
        else:
            offset = offset.reshape(-1) if isinstance(offset, torch.Tensor) else offset
            setattr(call, name + "s", per_sequence(call, integers(offset, q, name), q, name))

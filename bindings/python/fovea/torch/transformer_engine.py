"""What Transformer Engine's modules take: their arguments, masks and biases as tensors, checkpoints and rotary positions. An
argument for a feature that Fovea lacks is an error that says so, never ignored."""

import torch
from torch import Tensor

from .._core import InvalidArgument, Unsupported
from .._request import AXES, one_of

_ALIASES = {
    "padding,causal": "padding_causal",
    "causal,padding": "padding_causal",
    "causal_padding": "padding_causal",
    "padding,causal_bottom_right": "padding_causal_bottom_right",
}
MASK_TYPES = (
    "no_mask",
    "padding",
    "causal",
    "padding_causal",
    "causal_bottom_right",
    "padding_causal_bottom_right",
    "arbitrary",
)

# Arguments that are refused if they are not at their defaults: (default, why).
_FP8 = "there is no fp8 in this version"
_GEMM = "projections are torch.nn.Linear"
_REFUSED = {
    "inference_params": (
        None,
        "there is no key/value cache: pass the cached keys and values, and q_offset, to fovea.torch.attention",
    ),
    "fp8_output": (False, _FP8),
    "bf16_backward": (False, _FP8),
    "num_splits": (1, "engines choose how they split keys"),
    "fuse_wgrad_accumulation": (False, _GEMM),
    **{
        f"ub_{name}": (False, _GEMM) for name in ("overlap_ag", "overlap_rs", "overlap_rs_dgrad", "bulk_dgrad", "bulk_wgrad")
    },
}


def refuse_others(owner: str, **given):
    """Raises for an argument of a module that has no meaning here and is not at its default."""
    for name, value in given.items():
        default, why = _REFUSED[name]
        if value is not default and value != default:
            raise Unsupported(f"{owner}: {name}={value!r} is not supported: {why}")


def mask_type_of(name: str) -> str:
    name = _ALIASES.get(name, name)
    return one_of("attn_mask_type", name, MASK_TYPES)


# Masks and biases. Sizes are checked, since a load beyond the end of a tensor would be clamped to its last element.


def sizes_of_call(layout, q, k, starts, longest):
    """(B, H, Sq, Skv) of tensors [S, B, H, D] or [B, S, H, D]; of packed ones the lengths that are given, or None."""
    if layout == "thd":
        return (None if starts is None else starts.shape[0] - 1, q.shape[-2], *longest)
    batch, _, length, _ = AXES[layout]
    return (q.shape[batch], q.shape[-2], q.shape[length], k.shape[length])


def check_extents(name, x, sizes):
    """Each extent of [B, H, Sq, Skv] is 1, or the call's own."""
    meaning = ("B", "H", "Sq", "Skv")
    if x.dim() != 4:
        raise InvalidArgument(f"{name}: {x.dim()} dimensions {list(x.shape)}; must be [B, H, Sq, Skv], each of them or 1")
    for extent, size, letter in zip(x.shape, sizes, meaning):
        if size is None and extent != 1:
            raise InvalidArgument(f"{name}: packed sequences need max_seqlen_q and max_seqlen_kv, which say its sizes")
        if extent != 1 and extent != size:  # not `in`, which Dynamo does not decide for lengths that vary
            raise InvalidArgument(f"{name}: {list(x.shape)}; {letter} must be {size} or 1, got {extent}")
    return x


def element(x, b, h, q, k):
    """The element of a tensor that has passed check_extents: extents of 1 are broadcast."""
    return x[tuple(i if extent > 1 else 0 for extent, i in zip(x.shape, (b, h, q, k)))]


def check_bool(mask):
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InvalidArgument(f"attention_mask: must be a bool tensor, True for what is masked; got {got}")
    return mask


def outside(attention_mask, sizes):
    """A mask function of a tensor [B or 1, H or 1, Sq or 1, Skv or 1] that is True for what is not seen."""
    if not isinstance(attention_mask, Tensor):
        raise InvalidArgument("attention_mask: attn_mask_type 'arbitrary' needs one bool tensor [B, H, Sq, Skv]")
    check_extents("attention_mask", check_bool(attention_mask), sizes)
    return lambda b, h, q, k: ~element(attention_mask, b, h, q, k)


def padding(attention_mask, sizes, needs_lengths):
    """Options of attention() for a padding mask, or a pair for queries and keys: lengths if all that is masked lies at the
    end of its sequence, else a mask. On a GPU, and in a compiled program, masks are looked at only if lengths are needed: that
    waits for the GPU, or breaks the graph."""
    masks = attention_mask if isinstance(attention_mask, tuple) else (attention_mask, attention_mask)
    if len(masks) != 2:
        raise InvalidArgument(f"attention_mask: {len(masks)} masks; must be one, or two, of queries and of keys")
    rows = []
    for mask, length in zip(masks, sizes[2:]):
        check_bool(mask)
        if mask.dim() == 4 and mask.shape[1] == 1 and not isinstance(attention_mask, tuple):
            if mask.shape[2] > 1 or (sizes[2] == 1 and mask.shape[3] == sizes[3] > 1):  # [B, 1, Sq, Skv]
                return {"mask_mod": outside(mask, sizes)}
        row = mask.reshape(mask.shape[0], -1)
        if (row.shape[0] != 1 and row.shape[0] != sizes[0]) or row.shape[1] != length:
            raise InvalidArgument(
                f"attention_mask: {list(mask.shape)}; must be [{sizes[0]}, 1, 1, {length}], or [B, 1, Sq, Skv]"
            )
        rows.append(row.expand(sizes[0], length))
    queries, keys = rows
    is_cheap = queries.device.type == "cpu" and not torch.compiler.is_compiling()
    if (needs_lengths or is_cheap) and all(is_at_the_end(x) for x in rows):
        return {"seq_lens": tuple(x.logical_not().sum(-1) for x in rows)}
    if needs_lengths:
        raise InvalidArgument(
            "attention_mask: a mask from the bottom right needs padding at the end of sequences, or cu_seqlens_q and "
            "cu_seqlens_kv"
        )
    return {"mask_mod": lambda b, h, q, k: ~(queries[b, q] | keys[b, k])}


def is_at_the_end(masked) -> bool:
    return not bool((masked[:, :-1] & ~masked[:, 1:]).any())


# Checkpoints and rotary positions.

# Of each fused projection: the parts that it is saved as.
_PARTS = {
    "qkv": ("query", "key", "value"),
    "layernorm_qkv": ("query", "key", "value"),
    "layernorm_query": ("query",),
    "key_value": ("key", "value"),
}


def without_extra_state(module, state, prefix, *_):
    """A hook before loading: drops the `_extra_state` that Transformer Engine saves for each module (FP8, which is not here)."""
    for name in [name for name in state if name.startswith(prefix) and name.endswith("_extra_state")]:
        del state[name]


def with_joined_projections(module, state, prefix, *_):
    """The same for MultiheadAttention, whose projections are saved in parts with fuse_qkv_params=False, one behind the other."""
    without_extra_state(module, state, prefix)
    for layer, parts in _PARTS.items():
        for kind in ("weight", "bias"):
            names = [f"{prefix}{layer}.{part}_{kind}" for part in parts]
            if all(name in state for name in names):
                state[f"{prefix}{layer}.{kind}"] = torch.cat([state.pop(name) for name in names])


def of_tokens(angles, x, starts):
    """Angles of packed tokens [T, ...], each by its place in its own sequence; `starts` says where these begin."""
    if starts is None:
        raise InvalidArgument("rotary_pos_emb: qkv_format thd needs cu_seqlens_q and cu_seqlens_kv")
    tokens = torch.arange(x.shape[0], device=x.device, dtype=starts.dtype)
    first = starts[torch.searchsorted(starts, tokens, right=True) - 1]
    places = tokens - first
    if x.shape[0] and x.device.type == "cpu" and int(places.max()) >= angles.shape[0]:
        raise InvalidArgument(
            f"rotary_pos_emb: {list(angles.shape)}; must have at least {int(places.max()) + 1} positions, as the longest sequence"
        )
    return angles[places.long()]


def check_angles(angles):
    shape = list(angles.shape) if isinstance(angles, Tensor) else type(angles).__name__
    if not isinstance(angles, Tensor) or len(shape) != 4 or shape[1:3] != [1, 1] or shape[3] % 2:
        raise InvalidArgument(f"rotary_pos_emb: {shape}; must be [S, 1, 1, R], angles of an even number of features")


def apply_rotary(x, angles, layout, interleaved):
    """Angles [S, 1, 1, R] turn the first R features of each head."""
    if layout == "thd":  # a batch of one: [T, 1, H, D]
        return apply_rotary(x.unsqueeze(1), angles, "sbhd", interleaved).squeeze(1)
    length = x.shape[AXES[layout][2]]
    if angles.shape[0] < length or angles.shape[-1] > x.shape[-1]:
        raise InvalidArgument(
            f"rotary_pos_emb: {list(angles.shape)}; must have at least {length} positions, and at most {x.shape[-1]} features"
        )
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    angles = angles[:length].flatten(1).to(exact)
    width = angles.shape[-1]
    angles = angles.view(length, 1, 1, width) if layout == "sbhd" else angles.view(1, length, 1, width)
    turned, rest = x[..., :width].to(exact), x[..., width:]
    out = turned * angles.cos() + partner(turned, interleaved) * angles.sin()
    return torch.cat([out.to(x.dtype), rest], -1) if rest.shape[-1] else out.to(x.dtype)


def partner(x, interleaved):
    """The feature that each one is rotated with: in the other half, or its neighbour."""
    if interleaved:
        return torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)

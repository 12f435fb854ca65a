"""What only the modules of Transformer Engine have: checkpoints as they are saved there, and rotary positions."""

import torch

from .._core import InvalidArgument

# Of each fused projection: the parts that it is saved as.
_PARTS = {"qkv": ("query", "key", "value"), "layernorm_qkv": ("query", "key", "value"), "key_value": ("key", "value")}


def without_extra_state(module, state, prefix, *_):
    """A hook before loading. Transformer Engine saves an `_extra_state` for each of its modules: FP8, which means nothing here."""
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


def apply_rotary(x, angles, layout, interleaved):
    """Angles [S, 1, 1, R] turn the first R features of each head."""
    if layout == "thd":  # a batch of one: [T, 1, H, D]
        return apply_rotary(x.unsqueeze(1), angles, "sbhd", interleaved).squeeze(1)
    length = x.shape[0 if layout == "sbhd" else 1]
    if angles.shape[0] < length or angles.shape[-1] > x.shape[-1]:
        raise InvalidArgument(
            f"rotary_pos_emb: {list(angles.shape)}; must have at least {length} positions, and at most {x.shape[-1]} features"
        )
    angles = angles[:length].flatten(1).float()
    width = angles.shape[-1]
    angles = angles.view(length, 1, 1, width) if layout == "sbhd" else angles.view(1, length, 1, width)
    turned, rest = x[..., :width].float(), x[..., width:]
    out = turned * angles.cos() + partner(turned, interleaved) * angles.sin()
    return torch.cat([out.to(x.dtype), rest], -1) if rest.shape[-1] else out.to(x.dtype)


def partner(x, interleaved):
    """What each feature is turned with: the other half, or its neighbour."""
    if interleaved:
        return torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)

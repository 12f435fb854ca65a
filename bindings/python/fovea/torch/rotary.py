"""Rotary positions as Transformer Engine applies them: angles [S, 1, 1, R] turn the first R features of each head."""

import torch

from .._core import InvalidArgument


def apply_rotary(x, angles, layout, interleaved):
    length = x.shape[0 if layout == "sbhd" else 1]
    if angles.shape[0] < length or angles.shape[-1] > x.shape[-1]:
        raise InvalidArgument(
            f"rotary_pos_emb: {list(angles.shape)}; must have at least {length} positions, and at most {x.shape[-1]} features"
        )
    angles = angles[:length].reshape(length, -1).float()
    angles = angles.view(length, 1, 1, -1) if layout == "sbhd" else angles.view(1, length, 1, -1)
    width = angles.shape[-1]
    turned, rest = x[..., :width].float(), x[..., width:]
    out = turned * angles.cos() + partner(turned, interleaved) * angles.sin()
    return torch.cat([out.to(x.dtype), rest], -1) if rest.shape[-1] else out.to(x.dtype)


def partner(x, interleaved):
    """What each feature is turned with: the other half, or its neighbour."""
    if interleaved:
        return torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)

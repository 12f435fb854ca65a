"""Checkpoints of Transformer Engine's modules, as they are saved there: states of FP8 that mean nothing here, and projections
that are saved apart."""

import torch

# Of each fused projection: the parts that it is saved as.
_PARTS = {"qkv": ("query", "key", "value"), "layernorm_qkv": ("query", "key", "value"), "key_value": ("key", "value")}


def without_extra_state(module, state, prefix, *_):
    """A hook before loading. Transformer Engine saves an `_extra_state` for each of its modules."""
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

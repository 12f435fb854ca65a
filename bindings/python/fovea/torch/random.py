"""Seeds of dropout from torch's generators: torch.manual_seed, checkpointing and torch.compile see an ordinary random
operation, on the query's device."""

import operator

import torch

from .._core import InvalidArgument
from .._request import dropout_of


def seed_tensor(dropout_p, generator, seed, like):
    """One int64 on the query's device, or None where nothing is dropped."""
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
    return torch.randint(
        -(2**63), 2**63 - 1, (1,), dtype=torch.int64, device=like.device, generator=generator
    )

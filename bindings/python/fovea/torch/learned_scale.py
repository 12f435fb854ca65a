"""A scale that is learned: a tensor of one element that wants a gradient becomes part of the modifier. So does any tensor in
a compiled program, which can't look at its value."""

import torch

from .._core import InvalidArgument
from .modifiers import is_callback


def is_learned(scale) -> bool:
    if not isinstance(scale, torch.Tensor):
        return False
    return torch.compiler.is_compiling() or (scale.requires_grad and torch.is_grad_enabled())


def scaled(score_mod, bprop, scale):
    """The modifier of scores that have no scale yet."""
    if scale.numel() != 1:
        raise InvalidArgument(f"scale: shape {list(scale.shape)}; must be a number, or a tensor of one element")
    is_function = callable(score_mod) and not is_callback(score_mod)
    if bprop is not None or not (score_mod is None or is_function):
        raise InvalidArgument(
            "scale: a learned one goes with a score_mod that is a function; in a formula it is a captured tensor, score * t[]"
        )
    if score_mod is None:
        return lambda score, b, h, q, k: score * scale
    return lambda score, b, h, q, k: score_mod(score * scale, b, h, q, k)

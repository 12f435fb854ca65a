"""Fovea for JAX: attention whose scores are modified by a formula, under jit, grad, vmap and sharding.

A compiled program runs no Python: modifiers are traced once, into the text of a formula."""

from __future__ import annotations

from .._request import TraceError
from ._attention import attention, dot_product_attention, explain
from ._context import context_attention
from ._inputs import SequenceDescriptor
from ._primitive import custom_call_targets, register
from ._ring import reorder_sequence

# fmt: off
__all__ = [
    "DotProductAttention", "SequenceDescriptor", "TraceError", "attention", "context_attention", "custom_call_targets",
    "dot_product_attention", "explain", "register", "reorder_sequence",
]
# fmt: on


def __getattr__(name: str):
    if name == "DotProductAttention":
        try:
            from .flax import DotProductAttention
        except ImportError as error:
            raise ImportError(f"fovea.jax.DotProductAttention is a Flax module and needs flax: {error}") from error
        return DotProductAttention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

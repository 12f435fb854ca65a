"""Fovea for JAX: attention whose scores are modified by a formula, under jit, grad, vmap and sharding.

Nothing of Python runs when a compiled program runs: modifiers are traced once, into the text of a formula.
"""

from __future__ import annotations

from ._attention import attention
from ._sequence import SequenceDescriptor
from ._symbolic import TraceError

__all__ = ["SequenceDescriptor", "TraceError", "attention"]

"""Fovea: fused attention whose scores are modified by a formula.

For NumPy and other arrays on the host: `fovea.attention`, `fovea.attention_backward`, `fovea.vjp`. For PyTorch and JAX:
`fovea.torch` and `fovea.jax`, which are imported on their own; this package needs neither, nor NumPy until it is used."""

from ._attention import attention, attention_backward, vjp
from ._core import (
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    OutOfMemory,
    Unsupported,
    cache_limit,
    engines,
    release_workspaces,
    set_log,
)
from ._core import version as _version
from ._plans import cache_clear
from ._request import TraceError
from .picture import Picture
from .program import Program, formula
from .report import Explanation, cache_stats, doctor, explain, load_bundle


__version__ = _version()
# fmt: off
__all__ = [
    "DeviceError", "Error", "Explanation", "InternalError", "InvalidArgument", "OutOfMemory", "Picture", "Program",
    "TraceError", "Unsupported", "attention", "attention_backward", "cache_clear", "cache_limit", "cache_stats",
    "doctor", "engines", "explain", "formula", "load_bundle", "release_workspaces", "set_log", "vjp",
]
# fmt: on

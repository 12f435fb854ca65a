"""`import cudnn` inside a callback, where cudnn is not installed: all that callbacks want of it are its data types."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator

from .tensor import data_type


@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("cudnn") is not None


@contextlib.contextmanager
def cudnn_importable() -> Iterator[None]:
    """While a callback is recorded, `import cudnn` finds the real one, or else a module with `data_type` alone."""
    if "cudnn" in sys.modules or _is_installed():
        yield
        return
    module = types.ModuleType("cudnn", "Stands for cudnn while Fovea records a callback: its data types.")
    module.data_type = data_type  # type: ignore[attr-defined]
    sys.modules["cudnn"] = module
    try:
        yield
    finally:
        sys.modules.pop("cudnn", None)

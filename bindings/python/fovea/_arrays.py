"""Arrays on the host as the library takes them: a pointer, a shape, strides in elements, a type. Nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _core

# Our names of element types, those of NumPy (and torch and JAX), and the library's numbers.
NAMES_IN_NUMPY = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i32": "int32", "i64": "int64"}
NAMES_IN_NUMPY |= {"u8": "uint8", "bool": "bool"}
CODES = {name: getattr(_core, name.upper()) for name in NAMES_IN_NUMPY}
FROM_NUMPY = {name: ours for ours, name in NAMES_IN_NUMPY.items()}


class HostArray(NamedTuple):
    """An array in place. `owner` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    owner: Any

    def captured(self, name: str, gradient: HostArray | None = None) -> tuple:
        """The tuple that Plan.run takes for a captured tensor."""
        bound = (name, self.pointer, CODES[self.dtype], self.shape, self.strides)
        return bound if gradient is None else (*bound, gradient.pointer, CODES[gradient.dtype], gradient.strides)


def host_array(name: str, array: Any) -> HostArray:
    """Any array on the host: of NumPy, or with DLPack or the buffer protocol. Errors say `name`."""
    if hasattr(array, "__array_interface__"):
        seen = _from_numpy(name, array)
    else:
        seen = _from_protocol(name, array)
    if not seen.dtype:
        kind = getattr(array, "dtype", type(array).__name__)
        raise _core.InvalidArgument(f"{name}: elements of type {kind}; must be one of {', '.join(CODES)}")
    return seen


_known: dict[Any, str] = {}  # NumPy's dtype to ours; kept, since `dtype.name` takes NumPy microseconds


def _name_of(name: str, dtype: Any) -> str:
    found = _known.get(dtype)
    if found is None:
        if not dtype.isnative:
            raise _core.InvalidArgument(f"{name}: elements in foreign byte order ({dtype.str}); convert it with .astype")
        found = FROM_NUMPY.get(dtype.name, "")
        if found:
            _known[dtype] = found
    return found


def _from_numpy(name: str, array: Any) -> HostArray:
    facts = array.__array_interface__
    shape, dtype, pointer, strides = facts["shape"], array.dtype, facts["data"][0], facts["strides"]
    ours = _name_of(name, dtype)
    if strides is None:
        return HostArray(pointer, shape, dense_strides(shape), ours, array)
    size = dtype.itemsize
    if any(stride % size for stride in strides):
        raise _core.InvalidArgument(f"{name}: strides of {strides} bytes; must be whole elements of {size} bytes")
    return HostArray(pointer, shape, tuple(stride // size for stride in strides), ours, array)


def _from_protocol(name: str, array: Any) -> HostArray:
    try:
        # A memoryview knows the strides that some exporters leave out.
        view = _core.HostView(array if hasattr(array, "__dlpack__") else memoryview(array))
    except (TypeError, BufferError, ValueError) as error:
        raise _core.InvalidArgument(
            f"{name}: {type(array).__name__}; must be an array on the host: of NumPy, with DLPack, or a buffer ({error})"
        ) from None
    if not view.on_host:
        raise _core.InvalidArgument(
            f"{name}: not on the host; fovea.attention is for arrays there (fovea.torch, fovea.jax: others)"
        )
    return HostArray(view.pointer, view.shape, view.strides, view.dtype, view)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def new_array(shape: tuple[int, ...], dtype: str) -> tuple[Any, HostArray]:
    """An uninitialised NumPy array, and its HostArray."""
    import numpy

    array = numpy.empty(shape, numpy_dtype(dtype))
    return array, host_array("a new array", array)


def numpy_dtype(dtype: str) -> Any:
    """The NumPy type of "f32" and the like; bf16 is that of ml_dtypes."""
    import numpy

    if dtype == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            raise _core.InvalidArgument("bfloat16 in NumPy needs the package ml_dtypes:  pip install ml_dtypes") from None
        return numpy.dtype(ml_dtypes.bfloat16)
    return numpy.dtype(NAMES_IN_NUMPY[dtype])

"""A call as engines for GPUs take it: the same formulas over what these engines can read.

Used by the lowering for CUDA and by explain(). Not here: the words of the problem line, which are _spec's.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ._rewrite import rewrite_loads, substitute, tokens
from ._spec import Spec

_INTEGERS = ("uint8", "int64")  # loads give int32 whichever of the integers it was
_TENSORS = ("o", "grad_o")  # engines for GPUs have one type for these and q, k, v


def for_gpu(spec: Spec, avals: Sequence) -> tuple[Spec, list]:
    """The Spec, and operands (anything with a shape, a dtype and update()) of the types that it now has.

    What it computes has other types, too, where it was to give o or gradients in another type than that of q.
    """
    spec = without_b_offset(spec)
    dtypes = {role: np.dtype(a.dtype) for role, a in zip(spec.operands, avals) if role.startswith("tensor:")}
    masks = {role.partition(":")[2] for role, dtype in dtypes.items() if dtype == np.bool_}
    new = {role: np.dtype(np.int32) for role, dtype in dtypes.items() if dtype.name in _INTEGERS}
    new.update({f"tensor:{name}": _mask_type(avals[0].dtype) for name in masks})
    new.update({role: np.dtype(avals[0].dtype) for role in _TENSORS})
    spec = spec.replace(o_dtype=None, grad_dtype=None)
    spec = spec.replace(**{key: _compared(text, masks) for key, text in _texts(spec).items()})
    return spec, [
        a if new.get(role, a.dtype) == a.dtype else a.update(dtype=new[role])
        for role, a in zip(spec.operands, avals)
    ]


def without_b_offset(spec: Spec) -> Spec:
    """The first sequence of this part as a scalar of the formulas: GPU engines follow no pointer to it."""
    by_place = spec.dropout and spec.rng == "portable"
    if "b_offset" not in spec.operands or by_place:
        return spec
    texts = _texts(spec)
    name = "first_b"
    while any(name in tokens(text) for text in texts.values()):
        name += "_"
    return spec.replace(
        operands=tuple(f"scalar:{name}" if role == "b_offset" else role for role in spec.operands),
        scalars=(*spec.scalars, (name, "i32")),
        **{key: substitute(text, {"b": f"(b + {name})"}) for key, text in texts.items()},
    )


def _texts(spec: Spec) -> dict[str, str]:
    return {key: text for key in ("mod", "mask", "bprop") if (text := getattr(spec, key)) is not None}


def _mask_type(dtype) -> np.dtype:
    """Of zeros and ones: as small as q is where that is half precision."""
    return np.dtype(dtype) if np.dtype(dtype).itemsize == 2 else np.dtype(jnp.float16)


def _compared(text: str, masks: set[str]) -> str:
    """Loads of masks as comparisons of the numbers that stand for them."""

    def load(name: str, indices: list[str]) -> str:
        loaded = f"{name}[{', '.join(indices)}]"
        return f"({loaded} != 0.0)" if name in masks else loaded

    return rewrite_loads(text, load) if masks else text

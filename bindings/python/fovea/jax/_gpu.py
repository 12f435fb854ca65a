"""A call as it is lowered for CUDA, where every operand lies in the memory of the GPU.

Used by the lowering and by explain(). Not here: the words of the problem line, which are _spec's.
"""

from __future__ import annotations

from ._rewrite import substitute, tokens
from ._spec import Spec


def without_b_offset(spec: Spec) -> Spec:
    """The first sequence of this part as a scalar of the formulas: engine cudnn follows no pointer to it. Where the
    portable dropout counts by it too, it stays, and other engines run the call."""
    by_place = spec.dropout and spec.rng == "portable"
    if "b_offset" not in spec.operands or by_place:
        return spec
    texts = {key: text for key in ("mod", "mask", "bprop") if (text := getattr(spec, key)) is not None}
    name = "first_b"
    while any(name in tokens(text) for text in texts.values()):
        name += "_"
    return spec.replace(
        operands=tuple(f"scalar:{name}" if role == "b_offset" else role for role in spec.operands),
        scalars=(*spec.scalars, (name, "i32")),
        **{key: substitute(text, {"b": f"(b + {name})"}) for key, text in texts.items()},
    )

"""Problem lines: the text that describes a problem to the library. Used by every front end; docs/problem_line.md has
the keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_PLAIN = re.compile(r"[^\s\"\\]+")

# Fields whose name in Python differs from the key in the line.
_KEYS = {
    "grad_o_dtype": "do_dtype",
    "grad_q_dtype": "dq_dtype",
    "grad_k_dtype": "dk_dtype",
    "grad_v_dtype": "dv_dtype",
}


def word(key: str, value: object) -> str:
    """`key=value`, with quotes if the value needs them."""
    text = value if isinstance(value, str) else _text(value)
    if _PLAIN.fullmatch(text):
        return f"{key}={text}"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{key}="{escaped}"'


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return ",".join(_text(x) if not isinstance(x, str) else x for x in value)
    return str(value)


def tensor_word(name: str, dtype: str, extents: Sequence[object]) -> str:
    """The declaration of a captured tensor; extents are numbers or the names of sizes."""
    return word("tensor", f"{name}:{dtype}[{','.join(map(str, extents))}]")


def scalar_word(name: str, dtype: str = "f32", value: object = None) -> str:
    """The declaration of a captured scalar."""
    return word("scalar", f"{name}:{dtype}" if value is None else f"{name}:{dtype}={_text(value)}")


def program_line(
    mod: str | None = None,
    mask: str | None = None,
    bprop: str | None = None,
    tensors: Iterable[tuple] = (),
    scalars: Iterable[tuple] = (),
) -> str:
    """Formulas with their declarations: tensors as (name, dtype, extents), scalars as (name, dtype[,
    value])."""
    words = [word(key, text) for key, text in (("mod", mod), ("mask", mask), ("bprop", bprop)) if text]
    words += [tensor_word(*tensor) for tensor in tensors]
    words += [scalar_word(*scalar) for scalar in scalars]
    return " ".join(words)


def problem_line(
    *,
    mod: str | None = None,
    mask: str | None = None,
    bprop: str | None = None,
    tensors: Iterable[tuple] = (),
    scalars: Iterable[tuple] = (),
    **fields: object,
) -> str:
    """A problem line. Fields are the keys of the line; None and False are left out, tuples become lists.

    >>> problem_line(b=2, h=8, sq=128, d=64, dtype="f32", mask="q >= k", lse=True)
    'b=2 h=8 sq=128 d=64 dtype=f32 lse=1 mask="q >= k"'
    """
    words = [
        word(_KEYS.get(key, key), value)
        for key, value in fields.items()
        if value is not None and value is not False
    ]
    program = program_line(mod, mask, bprop, tensors, scalars)
    return " ".join([*words, program] if program else words)


def symbolic_extents(shape: Sequence[int], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Extents, with the name of a size for each that equals it, so that other sizes share the plan; 1 stays 1."""
    names = {size: name for name, size in reversed(list(sizes.items())) if size != 1}
    return tuple(names.get(extent, str(extent)) for extent in shape)

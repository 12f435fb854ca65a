"""Problem lines: the text that describes a problem to the library. Used by every front end; docs/problem_line.md has
the keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_PLAIN = re.compile(r"[^\s\"\\]+")


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


def problem_line(*, tensors: Iterable[tuple] = (), scalars: Iterable[tuple] = (), **fields: object) -> str:
    """A problem line. Fields are the keys of the line; None and False are left out, tuples become lists. What
    formulas capture: tensors as (name, dtype, extents), scalars as (name, dtype[, value]).

    >>> problem_line(b=2, h=8, sq=128, d=64, dtype="f32", lse=True, mask="q >= k", tensors=[("t", "f32", ("H", 4))])
    'b=2 h=8 sq=128 d=64 dtype=f32 lse=1 mask="q >= k" tensor=t:f32[H,4]'
    """
    words = [word(key, value) for key, value in fields.items() if value is not None and value is not False]
    words += [word("tensor", f"{name}:{dtype}[{','.join(map(str, extents))}]") for name, dtype, extents in tensors]
    words += [word("scalar", f"{name}:{dtype}" + (f"={_text(*value)}" if value else "")) for name, dtype, *value in scalars]
    return " ".join(words)


def program_line(mod=None, mask=None, bprop=None, tensors: Iterable[tuple] = (), scalars: Iterable[tuple] = ()) -> str:
    """The line of formulas with what they capture."""
    return problem_line(mod=mod or None, mask=mask or None, bprop=bprop or None, tensors=tensors, scalars=scalars)


def symbolic_extents(shape: Sequence[int], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Extents, with the name of a size for each that equals it, so that other sizes share the plan; 1 stays 1."""
    names = {size: name for name, size in reversed(list(sizes.items())) if size != 1}
    return tuple(names.get(extent, str(extent)) for extent in shape)

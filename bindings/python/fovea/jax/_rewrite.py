"""Formulas rewritten as text: loads given another index, and the words that are used outside of loads.

Sharding and batching change what `b` or `h` means. Formulas are short and loads are the only use of brackets, so replacing
words is enough; the parser checks the result like any other text."""

from __future__ import annotations

import re
from collections.abc import Callable

from .._request import substitute
from ._spec import Spec

_TOKEN = re.compile(
    r"\s*(0x[0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[A-Za-z_]\w*|&&|\|\||[<>=!]=|<<|>>|//|.)"
)
_WORD = re.compile(r"[A-Za-z_]\w*\Z")


def tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.rstrip())


def rewrite_loads(text: str, rewrite: Callable[[str, list[str]], str]) -> str:
    """Each load name[i, j], inner ones first, replaced by rewrite(name, [i, j])."""
    parts, done, at = tokens(text), [], 0
    while at < len(parts):
        if _WORD.match(parts[at]) and parts[at + 1 : at + 2] == ["["]:
            indices, end = _indices(parts, at + 2, rewrite)
            done.append(rewrite(parts[at], indices))
            at = end
        else:
            done.append(parts[at])
            at += 1
    return " ".join(done)


def _indices(parts: list[str], at: int, rewrite) -> tuple[list[str], int]:
    """The indices from `at` up to the closing bracket, and the place behind it."""
    indices: list[str] = []
    current: list[str] = []
    depth = 0
    while depth or parts[at] != "]":
        token = parts[at]
        if _WORD.match(token) and at + 1 < len(parts) and parts[at + 1] == "[":
            inner, at = _indices(parts, at + 2, rewrite)
            current.append(rewrite(token, inner))
            continue
        depth += (token == "(") - (token == ")")
        if token == "," and depth == 0:
            indices.append(" ".join(current))
            current = []
        else:
            current.append(token)
        at += 1
    if current:
        indices.append(" ".join(current))
    return indices, at + 1


def uses_apart_from_loads(text: str, word: str, own: Callable[[str, int], bool]) -> bool:
    """Is `word` used anywhere but as the whole index d of a load of name with own(name, d)?"""

    def without(name: str, indices: list[str]) -> str:
        kept = ["0" if index == word and own(name, d) else index for d, index in enumerate(indices)]
        return f"{name}[{', '.join(kept)}]"

    return word in tokens(rewrite_loads(text, without))


def without_b_offset(spec: Spec) -> Spec:
    """A call as it is lowered for CUDA: the first sequence of this part is a scalar of the formulas, since engine cudnn
    follows no pointer to it. If portable dropout counts by it too, it stays, and other engines run the call."""
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

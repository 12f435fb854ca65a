"""Pictures of programs: a grid of values as PNG, made with nothing but zlib."""

from __future__ import annotations

import base64
import html
import math
import os
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from .program import Program

# From low to high: dark blue, teal, green, yellow. Light grey is what is masked, red what is no number.
_COLOURS = [(38, 28, 84), (46, 76, 138), (36, 132, 141), (78, 184, 109), (249, 229, 60)]
_MASKED = (226, 226, 226)
_NAN = (214, 39, 40)


def _colour(share: float) -> tuple[int, int, int]:
    at = share * (len(_COLOURS) - 1)
    low = min(int(at), len(_COLOURS) - 2)
    return tuple(round(a + (b - a) * (at - low)) for a, b in zip(_COLOURS[low], _COLOURS[low + 1]))  # type: ignore[return-value]


class Picture:
    """One head of a program: rows are queries, columns keys. A notebook shows it; `save` writes it as PNG."""

    def __init__(self, values: list[list[float | None]], caption: str) -> None:
        self.values = values
        kept = [x for row in values for x in row if x is not None and math.isfinite(x)]
        self.low, self.high = (min(kept), max(kept)) if kept else (0.0, 0.0)
        span = f"{self.low:g} ... {self.high:g}" if kept else "nothing is kept"
        self.caption = f"{caption}   [{span}]"

    def _pixel(self, value: float | None) -> tuple[int, int, int]:
        if value is None or value == -math.inf:  # a score of -inf counts as masked
            return _MASKED
        if math.isnan(value):
            return _NAN
        if value == math.inf:
            return _COLOURS[-1]
        return _colour((value - self.low) / (self.high - self.low) if self.high > self.low else 0.5)

    def png(self, cell: int | None = None) -> bytes:
        """The bytes of a PNG; each value is a square of `cell` pixels (None: about 320 pixels in all)."""
        rows, columns = len(self.values), len(self.values[0]) if self.values else 0
        cell = cell or max(1, 320 // max(rows, columns, 1))
        raw = bytearray()
        for row in self.values:
            line = b"\0" + b"".join(bytes(self._pixel(value)) * cell for value in row)
            raw += line * cell
        header = struct.pack(">IIBBBBB", max(columns * cell, 1), max(rows * cell, 1), 8, 2, 0, 0, 0)
        if not raw:
            raw = bytearray(b"\0\xff\xff\xff")
        chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(raw), 9)), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )

    def save(self, path: str | os.PathLike) -> None:
        """Writes the PNG to a file."""
        with open(path, "wb") as file:
            file.write(self.png())

    def _repr_png_(self) -> bytes:
        return self.png()

    def _repr_html_(self) -> str:
        return with_caption(self.png(), self.caption)

    def __repr__(self) -> str:
        return f"<fovea.Picture {len(self.values)} x {len(self.values[0]) if self.values else 0}: {self.caption}>"


def with_caption(png: bytes | None, caption: str) -> str:
    """HTML of a picture (None: without it) with a text below."""
    image = f'<img alt="" src="data:image/png;base64,{base64.b64encode(png).decode()}"/>' if png else ""
    return f"<figure>{image}<figcaption><pre>{html.escape(caption)}</pre></figcaption></figure>"


def draw(
    program: Program,
    *,
    score: float,
    at: tuple[int, int],
    sizes: tuple[int, int, int, int],
    tensors: Mapping[str, Any],
    scalars: Mapping[str, float],
) -> Picture:
    """The picture of a program at one score; `at` is (b, h), sizes are (batch, heads, sq, skv)."""
    batch, heads, sq, skv = sizes
    if sq < 1 or skv < 1 or sq * skv > 1 << 22:
        raise _core.InvalidArgument(f"sq x skv is {sq} x {skv}; a picture has between 1 and {1 << 22} cells")
    if not (0 <= at[0] < batch and 0 <= at[1] < heads):
        raise _core.InvalidArgument(
            f"b, h is {at[0]}, {at[1]}; there are {batch} sequences and {heads} heads"
        )
    bound, held = _bound_tensors(program, tensors)
    values, kept = program.core.evaluate_grid(
        score,
        (*at, 0, 0),
        (batch, heads, heads, sq, skv),
        tensors=bound,
        scalars=_bound_scalars(program, scalars),
    )
    del held
    numbers = memoryview(values).cast("d")
    only_mask = program.mod is None
    rows = [
        [(1.0 if only_mask else numbers[q * skv + k]) if kept[q * skv + k] else None for k in range(skv)]
        for q in range(sq)
    ]
    return Picture(rows, program.core.text())


def _bound_tensors(program: Program, tensors: Mapping[str, Any]) -> tuple[tuple, list]:
    if missing := [name for name, *_ in program.tensors if name not in tensors]:
        raise _core.InvalidArgument(
            f"tensors has no {missing[0]!r}, which the program captures; it is needed to draw it"
        )
    if not program.tensors:
        return (), []
    from ._arrays import host_array

    held = [host_array(f"tensors[{name!r}]", tensors[name]) for name, *_ in program.tensors]
    return tuple(array.captured(name) for (name, *_), array in zip(program.tensors, held)), held


def _bound_scalars(program: Program, scalars: Mapping[str, float]) -> tuple:
    bound = []
    for name, _, default in program.scalars:
        value = scalars.get(name, default)
        if value is None:
            raise _core.InvalidArgument(
                f"scalars has no {name!r}, which the program captures and has no default for"
            )
        bound.append((name, float(value)))
    return tuple(bound)

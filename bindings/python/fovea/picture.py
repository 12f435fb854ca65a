"""Pictures of programs, drawn by matplotlib in the style of `fovea show`."""

from __future__ import annotations

import base64
import html
import io
import math
import os
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _core
from ._arrays import host_array
from ._request import scalars_of

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from .program import Program

# The colours of cli/draw/picture; a test compares them.
PALETTE = {
    "paper": (255, 255, 255),
    "ink": (31, 41, 51),
    "muted": (97, 110, 124),
    "kept": (42, 105, 172),
    "kept_in_mixed": (82, 140, 201),
    "masked": (232, 235, 240),
    "masked_in_mixed": (253, 230, 203),
    "mixed_line": (224, 123, 0),
    "masked_score": (218, 221, 226),
    "not_finite": (214, 51, 143),
}
RAMPS = {
    "sequential": "360c5c 381e6d 382e7c 343f89 2e5091 276097 1f719b 1e809d 22909e 249f9d 2faf98 48bd8f 64ca82 85d672 aadf60"
    " d0e64e f5eb3d",
    "diverging": "083b7e 185396 296bae 4384c1 639cd1 86b4dd abcce9 d2e3f2 fafafa f3dbcd ebbca2 e19c7b d77b55 c85937 b13b24"
    " 95221a 790410",
}
_MIXED = 2  # of fovea_tile_class: empty, full, mixed
# In inches, of a hundred pixels each on a screen: the longer side of the map, and the room around it.
_SIDE, _LEFT, _RIGHT, _TOP, _BOTTOM, _GAP, _LINE = 4.8, 0.95, 2.45, 0.4, 0.85, 0.33, 0.23


def _colour(name: str) -> tuple[float, ...]:
    return tuple(part / 255 for part in PALETTE[name])


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    if 0 < part < whole:
        return "<0.1 %" if share < 0.05 else ">99.9 %" if share >= 99.95 else f"{share:.1f} %"
    return f"{share:.0f} %"


def _ticks(positions: int, length: float) -> tuple[list[float], list[int]]:
    """Places and labels of ticks: steps of powers of two, as tiles have, or round ones."""
    wanted = min(8, max(1, int(length / 0.4)))
    step = 1 << max(0, math.ceil(math.log2(positions / wanted)))
    if positions % step or positions < 32:
        power = 10 ** max(0, math.floor(math.log10(positions / wanted)))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * wanted >= positions)
    middle = positions <= 64  # a large cell has its number at its middle
    labels = list(range(0, positions + (not middle), step))
    return [at + 0.5 * middle for at in labels], labels


class Picture:
    """One head of a program: rows are queries, columns keys. A notebook shows it; `save` writes it to a file.

    `values` has the modified scores, None for masked ones; `low` and `high` are the smallest and the largest of them.
    Drawing needs matplotlib:  pip install 'fovea[plot]'."""

    def __init__(
        self, values: list[list[float | None]], title: str, subtitle: str, *, scored: bool, tile: int, tiles: bytes
    ) -> None:
        # A score of -inf counts as masked.
        self.values = [[None if x == -math.inf else x for x in row] for row in values]
        self.title, self.subtitle = title, subtitle
        self._scored, self._tile, self._tiles = scored, tile, tiles
        finite = [x for row in self.values for x in row if x is not None and math.isfinite(x)]
        self.low, self.high = (min(finite), max(finite)) if finite else (0.0, 0.0)
        self._span = f"{self.low:g} ... {self.high:g}" if finite else "nothing is kept"

    def figure(self) -> Figure:
        """The picture as a new matplotlib figure, to be changed or put beside others."""
        try:
            from matplotlib import figure, style
        except ImportError as error:
            raise ImportError("a picture is drawn by matplotlib:  pip install 'fovea[plot]'") from error
        rows, columns = len(self.values), len(self.values[0])
        wide, high = (_SIDE * max(0.25, n / max(rows, columns)) for n in (columns, rows))
        room = max(wide + _RIGHT, 5.5)
        lines = textwrap.wrap(self.title, int(11 * room), max_lines=3, placeholder=" …")
        top = _TOP + _LINE * (len(lines) + 1)
        legend = max(high, 3.0 if self._scored else 1.5)
        size = _LEFT + room, top + legend + _BOTTOM
        with style.context("default"):
            made = figure.Figure(size, dpi=100, facecolor="white")
            place = _LEFT / size[0], 1 - (top + high) / size[1], wide / size[0], high / size[1]
            axes = made.add_axes(place, xlim=(0, columns), ylim=(rows, 0))
            for i, line in enumerate([*lines, self.subtitle]):
                last = i == len(lines)
                look = {"size": 10, "color": _colour("muted")} if last else {"size": 12, "color": _colour("ink")}
                made.text(_LEFT, size[1] - _TOP - _LINE * i, line, transform=made.dpi_scale_trans, **look)
            mapped = self._draw_map(axes)
            self._draw_tiles(axes)
            _draw_axis(axes.xaxis, "key position k", _ticks(columns, wide))
            _draw_axis(axes.yaxis, "query position q", _ticks(rows, high))
            for spine in axes.spines.values():
                spine.set_color(_colour("muted"))
            self._draw_legend(made, mapped, (_LEFT + wide + _GAP, size[1] - top), legend)
        return made

    def _draw_map(self, axes: Axes) -> ScalarMappable | None:
        """Returns the scale for the colour bar, or None for a mask."""
        import numpy as np

        masked = np.array([[x is None for x in row] for row in self.values])
        colours = np.empty((*masked.shape, 3), np.uint8)
        mapped = self._colour_map() if self._scored else None
        if mapped:
            values = np.array([[0.0 if x is None else x for x in row] for row in self.values])
            finite = np.isfinite(values)
            colours[:] = mapped.to_rgba(np.where(finite, values, 0), bytes=True)[..., :3]
            colours[~finite] = PALETTE["not_finite"]
            colours[masked] = PALETTE["masked_score"]
        else:
            tile_of = np.ix_(*(np.arange(n) // self._tile for n in masked.shape))
            mixed = self._mixed()[tile_of]
            for name, where in {"kept": ~masked, "masked": masked}.items():
                colours[where] = PALETTE[name]
                colours[where & mixed] = PALETTE[name + "_in_mixed"]
        rows, columns = masked.shape
        # More cells than pixels are averaged.
        how = "auto" if max(rows, columns) > 100 * _SIDE else "nearest"
        axes.imshow(colours, extent=(0, columns, rows, 0), aspect="auto", interpolation=how)
        return mapped

    def _colour_map(self) -> ScalarMappable:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, Normalize

        low, high, kind = self.low, self.high, "sequential"
        if low < 0 < high:
            low, high, kind = min(low, -high), max(-low, high), "diverging"
        elif low == high:  # a constant still needs an axis
            low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
        ramp = ["#" + colour for colour in RAMPS[kind].split()]
        return ScalarMappable(Normalize(low, high), LinearSegmentedColormap.from_list(kind, ramp, N=1025))

    def _mixed(self) -> np.ndarray:
        """[tiles down, tiles across], true for the mixed ones."""
        import numpy as np

        down = -(-len(self.values) // self._tile)
        return np.frombuffer(self._tiles, np.uint8).reshape(down, -1) == _MIXED

    def _draw_tiles(self, axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        rows, columns, step = len(self.values), len(self.values[0]), self._tile
        if not self._tiles or max(rows, columns) / step > 80:  # none, or too small for frames
            return
        line = {"colors": "white", "linewidth": 0.8, "alpha": 0.8}
        axes.vlines(range(step, columns, step), 0, rows, **line)
        axes.hlines(range(step, rows, step), 0, columns, **line)
        look = {"fill": False, "edgecolor": _colour("mixed_line"), "linewidth": 1.4, "clip_on": False, "zorder": 3}
        for i, j in zip(*self._mixed().nonzero()):
            size = min(step, columns - j * step), min(step, rows - i * step)
            axes.add_patch(Rectangle((j * step, i * step), *size, **look))

    def _draw_legend(self, made: Figure, mapped: ScalarMappable | None, corner: tuple[float, float], high: float) -> None:
        """A colour bar and rows of words, down from a corner, in inches."""
        from matplotlib.patches import Patch

        rows, (x, y) = self._legend_rows(mapped), corner
        if mapped and self._span != "nothing is kept":
            made.text(x, y - 0.1, "modified score", transform=made.dpi_scale_trans, size=10, color=_colour("ink"))
            tall = min(high - 0.25 - 0.35 - 0.25 * len(rows), 3.2)
            width, height = made.get_size_inches()
            bar = made.add_axes((x / width, (y - 0.25 - tall) / height, 0.17 / width, tall / height))
            made.colorbar(mapped, cax=bar).outline.set_color(_colour("muted"))
            bar.tick_params(color=_colour("muted"), labelcolor=_colour("ink"), labelsize=9)
            y -= 0.25 + tall + 0.35
        made.legend(
            handles=[Patch(facecolor=fill, edgecolor=line, linewidth=1.4, label=words) for fill, line, words in rows],
            loc="upper left",
            bbox_to_anchor=(x, y),
            bbox_transform=made.dpi_scale_trans,
            labelcolor=_colour("ink"),
            fontsize=10,
            frameon=False,
            handlelength=1.1,
            handleheight=1.1,
            borderpad=0,
            borderaxespad=0,
        )

    def _legend_rows(self, mapped: ScalarMappable | None) -> list[tuple[tuple, tuple, str]]:
        """(colour, colour of its frame, words) of each."""
        cells = [x for row in self.values for x in row]
        masked = cells.count(None)
        strange = [x for x in cells if x is not None and not math.isfinite(x)]
        blank = _colour("masked_score" if mapped else "masked")
        rows = []
        if not mapped:
            rows.append((_colour("kept"), f"kept  {_share(len(cells) - masked, len(cells))}"))
        if masked or not mapped:
            rows.append((blank, f"masked  {_share(masked, len(cells))}"))
        if strange:
            kinds = ", ".join(sorted({f"{x:g}" for x in strange}))
            rows.append((_colour("not_finite"), f"{kinds}  {_share(len(strange), len(cells))}"))
        fills = {"empty": blank, "full": mapped.cmap(0.8) if mapped else _colour("kept")}
        fills["mixed"] = blank if mapped else _colour("masked_in_mixed")
        for kind, (name, fill) in enumerate(fills.items() if self._tiles else []):
            count = self._tiles.count(kind)
            rows.append((fill, f"{name} tiles  {count} ({_share(count, len(self._tiles))})"))
        return [(fill, _colour("mixed_line") if "mixed" in words else fill, words) for fill, words in rows]

    def png(self, dpi: float = 100) -> bytes:
        """The bytes of a PNG."""
        return self._file("png", dpi)

    def save(self, path: str | os.PathLike, dpi: float = 200) -> None:
        """Writes the picture to a file; its suffix (.png, .svg, .pdf) is the format."""
        data = self._file(os.path.splitext(path)[1][1:], dpi)  # before the file is opened
        with open(path, "wb") as file:
            file.write(data)

    def _file(self, kind: str, dpi: float) -> bytes:
        out = io.BytesIO()
        self.figure().savefig(out, format=kind, dpi=dpi)
        return out.getvalue()

    def _repr_png_(self) -> bytes | None:
        try:
            return self.png()
        except ImportError:  # a notebook then shows the text below
            return None

    def __repr__(self) -> str:
        return f"<fovea.Picture {len(self.values)} x {len(self.values[0])}: {self.title}   [{self._span}]>"


def _draw_axis(axis: Axis, label: str, ticks: tuple[list[float], list[int]]) -> None:
    axis.set_ticks(*ticks)
    axis.set_tick_params(color=_colour("muted"), labelcolor=_colour("ink"), labelsize=9)
    axis.set_label_text(label, color=_colour("ink"), size=10.5)
    axis.labelpad = 6


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
    tile: int | None,
) -> Picture:
    """The picture of a program at one score; `at` is (b, h), sizes are (batch, heads, sq, skv)."""
    batch, heads, sq, skv = sizes
    if sq < 1 or skv < 1 or sq * skv > 1 << 22:
        raise _core.InvalidArgument(f"sq x skv is {sq} x {skv}; a picture has between 1 and {1 << 22} cells")
    if not (0 <= at[0] < batch and 0 <= at[1] < heads):
        raise _core.InvalidArgument(f"b, h is {at[0]}, {at[1]}; there are {batch} sequences and {heads} heads")
    tile = 1 << max(0, max(sq, skv) // 8 - 1).bit_length() if tile is None else tile
    if tile < 1:
        raise _core.InvalidArgument(f"tile is {tile}; a tile has at least one row and one column")
    captured = scalars_of([program], False, tensors, scalars)
    held = [(name, host_array(f"tensors[{name!r}]", tensors[name])) for name, *_ in program.tensors]
    values, kept, tiles = program.core.evaluate_grid(
        score,
        (*at, 0, 0),
        (batch, heads, heads, sq, skv),
        tensors=tuple(array.captured(name) for name, array in held),
        scalars=tuple((name, float(captured[name])) for name, *_ in program.scalars),
        tile=tile,
    )
    numbers = memoryview(values).cast("d")
    only_mask = program.mod is None
    rows = [
        [(1.0 if only_mask else numbers[q * skv + k]) if kept[q * skv + k] else None for k in range(skv)] for q in range(sq)
    ]
    title = "   where   ".join(formula for formula in (program.mod, program.mask) if formula)
    subtitle = f"{sq} × {skv}   b={at[0]} h={at[1]}" + ("" if only_mask else f"   score={score:g}")
    if program.mask is None:
        tiles = b""
    else:
        subtitle += f"   tiles {tile} × {tile}"
    return Picture(rows, title, subtitle, scored=not only_mask, tile=tile, tiles=tiles)

#!/usr/bin/env python3
"""Draws the pictures of docs/gallery.md and fills in its table, from the formulas that stand on the page.

  ./dev python tools/gallery.py             the table and the pictures
  ./dev python tools/gallery.py --table     the table alone

Needs build/fovea and cuDNN, as ./dev setup has it. Tests compare the formulas with the functions beside them, by the data
that is made here.
"""

import argparse
import contextlib
import dataclasses
import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import fovea

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/gallery.md"
PICTURES = ROOT / "docs/images/gallery"
TABLE = "| | skipped | full | CPU | H200 |\n|---|---:|---:|---|---|\n"
LENGTHS = {"t5": 256, "tree": 64, "swin": 64, "pairs": 64}  # of queries and keys in a picture, if not 1024


@dataclasses.dataclass(frozen=True)
class Sizes:
    s: int  # queries, and keys
    b: int = 1
    h: int = 4

    def random(self):
        return np.random.default_rng(7)


def slopes(z):
    return 2.0 ** (-8.0 * np.arange(1, z.h + 1) / z.h)


def documents(z):
    """Sorted ids: lengths differ from sequence to sequence."""
    starts = z.random().integers(0, z.s, (z.b, 5, 1))
    return (np.arange(z.s) >= starts).sum(1)


def spans(z):
    """Text is -1; images are runs of equal numbers."""
    ids = np.full((z.b, z.s), -1)
    for first, number in ((z.s // 8, 0), (z.s // 2, 1)):
        ids[:, first : first + z.s // 4] = number
    return ids


def random_blocks(z):
    """Which blocks of 64 x 64 every head looks at beside its window."""
    return z.random().random((z.h, 16, 16)) < 0.15


def tree(z):
    """Which draft token is an ancestor of which: the parent of token i is (i - 1) // 2."""
    kept = np.eye(z.s, dtype=bool)
    for i in range(1, z.s):
        kept[i] |= kept[(i - 1) // 2]
    return kept


def forgotten(z):
    """Sums of the logarithms of forget gates."""
    return np.cumsum(np.log(z.random().uniform(0.98, 1, (z.b, z.h, z.s))), axis=-1)


def normal(declared):
    """Of what is declared as f32[H,32]."""
    extents = declared.split("[")[1].rstrip("]").split(",")
    of = lambda z, x: {"B": z.b, "H": z.h, "Sq": z.s, "Skv": z.s}.get(x) or int(x)
    return lambda z: z.random().standard_normal([of(z, x) for x in extents])


# By the name of a captured tensor; the others are normal.
DATA = {
    "doc": documents, "span": spans, "far": random_blocks, "above": tree, "gates": forgotten,
    "slopes": slopes, "amount": slopes, "rate": slopes,
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A section of the page."""

    name: str  # of its picture
    title: str
    words: str  # of a problem line, each on a line of its own
    mod: str
    mask: str
    tensors: tuple  # (name, "f32[H]", a function of the Sizes that makes it)
    functions: tuple  # the blocks of Python: of torch and JAX, or one for both

    @property
    def length(self):
        return LENGTHS.get(self.name, 1024)

    def source(self, framework):
        """Its Python functions for "torch" or "jax"."""
        return self.functions[0 if framework == "torch" else -1]


def read_entry(section):
    words, *functions = re.findall(r"^```(?:python)?\n(.*?)\n```$", section, re.MULTILINE | re.DOTALL)
    pairs = re.findall(r'^(\w+)="(.*)"$', words, re.MULTILINE)
    declared = [value.split(":") for key, value in pairs if key == "tensor"]
    name = re.search(r"images/gallery/(\w+)\.png", section)[1]
    formulas = dict(pair for pair in pairs if pair[0] != "tensor")
    tensors = tuple((name, kind, DATA.get(name) or normal(kind)) for name, kind in declared)
    title = section.split("\n")[0]
    return Entry(name, title, words, formulas.get("mod", ""), formulas.get("mask", ""), tensors, tuple(functions))


ENTRIES = tuple(map(read_entry, re.split("^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]))


def line(entry, folder):
    """A problem line with the entry's own data, saved in a folder."""
    sizes = Sizes(entry.length)
    words = [f'mod="{entry.mod}"' if entry.mod else "", f'mask="{entry.mask}"' if entry.mask else ""]
    words.append(f"b={sizes.b} h={sizes.h} sq={sizes.s}")
    for name, declared, make in entry.tensors:
        kind = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}[declared.split("[")[0]]
        path = Path(folder) / f"{entry.name}_{name}.npy"
        np.save(path, make(sizes).astype(kind))
        words.append(f'tensor="{name}:{declared}={path}"')
    return " ".join(words)


def show(*arguments):
    program = [str(ROOT / "build/fovea"), "show", *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


def tiles(entry, folder):
    """(share skipped, share full) of tiles of 64 x 64, or None if there is no mask."""
    if not entry.mask:
        return None
    found = show(line(entry, folder), "--plain", "--tile", str(entry.length // 16))
    return tuple(re.search(rf"{name} \d+ \((.+?) ?%\)", found)[1] + " %" for name in ("empty", "full"))


def engines(entry, device):
    """The engines of the forward and of the backward."""
    dtype = "f32" if device == "cpu" else "bf16"
    problem = entry.words.replace("\n", " ") + f" b=2 h=8 sq={entry.length} d=64 dtype={dtype}"
    chosen = [fovea.explain(f"{problem} direction={x}", device=device).chosen for x in ("forward", "backward")]
    return " / ".join(dict.fromkeys(chosen))


def page():
    """The page with its table as it is found now."""
    for folder in ROOT.glob(".venv-cuda/lib/python3*/site-packages/nvidia/cudnn/lib"):
        os.environ.setdefault("FOVEA_CUDNN_DIR", str(folder))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for entry in ENTRIES:
            skipped, full = tiles(entry, folder) or ("–", "–")
            link = f"[{entry.title}](#{re.sub(r'[^a-z0-9 -]', '', entry.title.lower()).replace(' ', '-')})"
            rows.append(f"| {link} | {skipped} | {full} | {engines(entry, 'cpu')} | {engines(entry, 'h200')} |\n")
    before, after = PAGE.read_text().split(TABLE)
    return before + TABLE + "".join(rows) + after[after.index("\n## ") :]


def draw():
    """Palettes, of 128 colours for heat maps: a fifth of the size, and the eye sees no difference."""
    from PIL import Image

    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for entry in ENTRIES:
            shown = ("-o", "picture.png", "--scale", "0.5", "--tile", str(entry.length // 16))
            show(line(entry, folder), *shown)
            colours = 128 if entry.mod else 32
            picture = Image.open("picture.png").convert("RGB").quantize(colours, dither=Image.Dither.NONE)
            picture.save(PICTURES / f"{entry.name}.png", optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="no pictures")
    arguments = parser.parse_args()
    PAGE.write_text(page())
    if not arguments.table:
        draw()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes docs/gallery.md and its pictures from tools/gallery_entries.py. Needs build/fovea and cuDNN, as ./dev setup has it.

  ./dev python tools/gallery.py               the page and the pictures
  ./dev python tools/gallery.py --page FILE   the page alone, into another file
"""

import argparse
import contextlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from gallery_entries import ENTRIES, Sizes

ROOT = Path(__file__).resolve().parent.parent
for folder in ROOT.glob(".venv-cuda/lib/python3*/site-packages/nvidia/cudnn/lib"):
    os.environ.setdefault("FOVEA_CUDNN_DIR", str(folder))

import fovea
PICTURES = ROOT / "docs/images/gallery"
HEAD = """# Gallery

<!-- Made by tools/gallery.py from tools/gallery_entries.py: change those. -->

Twenty modifiers and masks that papers and models use, each as a formula and as functions of PyTorch and JAX. The forms say the
same: tests run all of them and compare. Functions go into `fovea.torch.flex_attention` (a mask through `create_block_mask`),
`fovea.torch.attention` and `fovea.jax.attention`; formulas there too, and into the problem lines of C, C++, Julia and the command
line ([the language](language.md)).

Pictures are those of `fovea show`, 1024 queries by 1024 keys of the first head unless they say otherwise: orange tiles are mixed,
the others are full or skipped. *Skipped* and *full* count these tiles (64 x 64; 4 x 4 of the 64 draft tokens); a full tile does not
evaluate the mask. The engines are what `fovea explain` chooses for b=2 h=8 d=64 and these lengths: f32 on a CPU, bf16 on an H200, forward /
backward if they differ.

| | skipped | full | CPU | H200 |
|---|---:|---:|---|---|
"""

def quoted(name, value):
    return f'{name}="{value}"' if value else ""


def formula(entry):
    """The words of a problem line that say what it is."""
    words = [quoted("mod", entry.mod), quoted("mask", entry.mask)]
    return "\n".join([word for word in words if word] + [quoted("tensor", f"{n}:{d}") for n, d, _ in entry.tensors])


def line(entry, folder):
    """A problem line with the entry's own data, saved in a folder."""
    sizes = Sizes(entry.length)
    words = [quoted("mod", entry.mod), quoted("mask", entry.mask), f"b={sizes.b} h={sizes.h} sq={sizes.s}"]
    for name, declared, make in entry.tensors:
        kind = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}[declared.split("[")[0]]
        path = Path(folder) / f"{entry.name}_{name}.npy"
        np.save(path, make(sizes).astype(kind))
        words.append(quoted("tensor", f"{name}:{declared}={path}"))
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
    problem = formula(entry).replace("\n", " ") + f" b=2 h=8 sq={entry.length} d=64 dtype={dtype}"
    chosen = [fovea.explain(f"{problem} direction={x}", device=device).chosen for x in ("forward", "backward")]
    return " / ".join(dict.fromkeys(chosen))


def section(entry):
    of_torch, of_jax = (f"```python\n{entry.source(x)}\n```\n" for x in ("torch", "jax"))
    functions = f"PyTorch:\n\n{of_torch}\nJAX:\n\n{of_jax}" if of_torch != of_jax else f"PyTorch and JAX:\n\n{of_jax}"
    return f"""
## {entry.title}

{entry.text}

![{entry.title}](images/gallery/{entry.name}.png)

```
{formula(entry)}
```

{functions}"""


def page():
    rows, sections = [], []
    with tempfile.TemporaryDirectory() as folder:
        for entry in ENTRIES:
            skipped, full = tiles(entry, folder) or ("–", "–")
            link = f"[{entry.title}](#{re.sub(r'[^a-z0-9 -]', '', entry.title.lower()).replace(' ', '-')})"
            rows.append(f"| {link} | {skipped} | {full} | {engines(entry, 'cpu')} | {engines(entry, 'h200')} |\n")
            sections.append(section(entry))
    return HEAD + "".join(rows) + "".join(sections)


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
    parser.add_argument("--page", metavar="FILE", type=Path, help="write only the page, into this file")
    arguments = parser.parse_args()
    (arguments.page or ROOT / "docs/gallery.md").write_text(page())
    if arguments.page is None:
        draw()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws what bench/jit_gpu.py measured: our time by the best peer's, a bar for each row and direction.

  python bench/gpu/draw_ratios.py build/gpu/speed_hopper.json docs/results/jit_hopper_nvidia_h200.png
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

COLOURS = {"forward": "#2b6cb0", "backward": "#dd8452"}


def named_peer(rows, name):
    """Rows that are held to a peer, not to another row of ours."""
    return next(iter(rows[name].values())).get("best") not in rows


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    result = json.loads(Path(sys.argv[1]).read_text().strip().splitlines()[-1])
    rows = result["rows"]
    names = [name for name in rows if named_peer(rows, name) and any("ratio" in d for d in rows[name].values())]
    figure, axes = pyplot.subplots(figsize=(8, 0.36 * len(names) + 1.2))
    for offset, direction in ((-0.19, "forward"), (0.19, "backward")):
        drawn = [(i, rows[name][direction]) for i, name in enumerate(names) if direction in rows[name]]
        drawn = [(i, one) for i, one in drawn if one.get("ratio")]
        places, ratios = [i + offset for i, _ in drawn], [one["ratio"] for _, one in drawn]
        axes.barh(places, ratios, height=0.36, color=COLOURS[direction], label=direction)
        for place, (_, one) in zip(places, drawn):
            axes.text(one["ratio"] + 0.01, place, f"{one['ratio']:.2f} of {one['best']}", va="center", fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, max(1.3, axes.get_xlim()[1] + 0.1))
    axes.set_xlabel(f"our time by the best peer's on an {result['gpu']}: less is faster")
    axes.legend(loc="upper right", fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=110)
    print(f"wrote {sys.argv[2]}")


if __name__ == "__main__":
    main()

"""The results as text: docs/results/cpu_<machine>.md, and a picture of the same name."""
import datetime
import os
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def _cell(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def _verdict(result):
    verdict = "" if result.bar is None else "pass" if result.ratio >= result.bar else "**slow**"
    if result.error > 1:
        verdict = "**wrong**"
    return ", ".join(word for word in (verdict, result.remark) if word)


def table(results):
    yield "| row | torch ms | Fovea ms | fastest | GFLOP/s | of peak | ratio | of fastest | bar | | error |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|"
    for r in results:
        peer_fastest, fastest = r.peer.fastest * 1e3, r.fovea.fastest * 1e3
        yield (f"| {r.row.name} | {r.peer.median * 1e3:.2f} | {r.fovea.median * 1e3:.2f} | "
               f"{peer_fastest:.2f} / {fastest:.2f} | {r.rate:.0f} | {r.share:.0%} | {r.ratio:.2f} | "
               f"{peer_fastest / fastest:.2f} | {_cell(r.bar)} | {_verdict(r)} | {r.error:.2f} |")


def sweep_table(sweep):
    yield "| S | " + " | ".join(f"d={d}: ms | GFLOP/s | of peak" for d in sweep) + " |"
    yield "|---:|" + "---:|---:|---:|" * len(sweep)
    lengths = sorted({length for points in sweep.values() for length in points})
    for length in lengths:
        cells = []
        for points in sweep.values():
            point = points.get(length)
            cells.append(f"{point.seconds * 1e3:.2f} | {point.rate:.0f} | {point.share:.0%}" if point else " | | ")
        yield f"| {length} | " + " | ".join(cells) + " |"


def markdown(run):
    facts = run.facts
    lines = [
        "# The CPU engine against PyTorch", "",
        f"- Machine: {facts['machine']}, {os.cpu_count()} cores visible, {run.threads} threads on each side, bound",
        f"- Fovea {facts['fovea']}, commit {facts['commit']}, {facts['compiler']}; instruction set {facts['isa']}",
        f"- PyTorch {facts['torch']}, Python {sys.version.split()[0]}",
        f"- Date: {datetime.date.today()}; load before {facts['load']}" + (
            "; **the machine was busy, these are no results**" if facts["busy"] else ""),
        f"- Command: `{facts['command']}`",
        f"- Peak of f32 multiply-adds, all threads at once: {run.peak_before:.1f} GFLOP/s before, "
        f"{run.peak_after:.1f} after ({run.peak_isa}); one thread {run.peak_one:.1f}", "",
        "Both sides run in one process on the same tensors, in turn, in rounds. Times are medians over rounds; `ratio` "
        "is torch's time over Fovea's, `of fastest` the same of the fastest calls. GFLOP/s count 4 d per visible "
        "score forward and 10 d backward. `error` is the largest relative error against float64 as a share of its "
        "limit. SDPA is `scaled_dot_product_attention`, flex is compiled `flex_attention`, own is Fovea's backward "
        "without the formula.", "",
        *table(run.results), "",
    ]
    if run.sweep:
        lines += ["## Length", "", "f32 forward, B=1 H=8, the fastest call.", "", *sweep_table(run.sweep), "",
                  f"Spread of efficiency over lengths: {run.spread_text()}", ""]
    if run.first_call:
        lines += ["## The first call of a new formula", "", run.first_call, ""]
    return "\n".join(lines)


def picture(run, path):
    """Ratios with their bars; efficiency by length below, where it was measured."""
    results = [r for r in run.results if r.row.peer != "own"]
    height = 0.28 * len(results) + 1.2
    figure, axes = pyplot.subplots(2 if run.sweep else 1, 1, squeeze=False, layout="constrained",
                                   figsize=(9, height + (3.2 if run.sweep else 0)),
                                   height_ratios=[height, 3.2] if run.sweep else [1])
    top = axes[0][0]
    colours = ["#888888" if r.bar is None else "#2b7a4b" if r.passed else "#b5402a" for r in results]
    top.barh([r.row.name for r in results], [r.ratio for r in results], color=colours, height=0.7)
    for i, r in enumerate(results):
        if r.bar is not None:
            top.plot([r.bar, r.bar], [i - 0.45, i + 0.45], color="black", linewidth=1.5)
        top.text(r.ratio, i, f" {r.ratio:.2f}", va="center", fontsize=8)
    top.axvline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
    top.margins(y=0.01)
    top.invert_yaxis()
    if results and max(r.ratio for r in results) > 6:
        top.set_xscale("log", base=2)
        top.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    top.set_xlabel("times as fast as PyTorch (black: the bar)")
    top.set_title(f"{run.facts['machine']}, {run.threads} threads, B=1 H=8 S=1024", fontsize=10)
    top.tick_params(labelsize=8)
    if run.sweep:
        below = axes[1][0]
        for d, points in run.sweep.items():
            below.plot(list(points), [100 * p.share for p in points.values()], marker="o", label=f"d={d}")
        below.set_xscale("log", base=2)
        below.set_xticks(sorted({n for points in run.sweep.values() for n in points}))
        below.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
        below.set_ylim(0, 100)
        below.set_xlabel("sequence length")
        below.set_ylabel("% of peak, f32 forward")
        below.legend(frameon=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)

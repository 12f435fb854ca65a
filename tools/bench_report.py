#!/usr/bin/env python3
"""Turns the JSON of Google Benchmark in build/ into docs/results/<name>_<machine>.md. Run by ./dev bench.

Also what the benchmarks in Python say of the machine, and where they write.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def first_line(*command):
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.split("\n")[0].strip() or "unknown"


def processor():
    """The model of the processor, not the name of the host: numbers are compared between kinds of machine."""
    match = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1].strip() if match else first_line("uname", "-m")


def slug(text):
    text = re.sub(r"\((R|TM|C)\)|@.*|\bCPU\b|\bProcessor\b", " ", text, flags=re.IGNORECASE)
    return "_".join(re.findall(r"[a-z0-9]+", text.lower()))


def compiler():
    cache = (ROOT / "build/CMakeCache.txt").read_text()
    return first_line(re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)[1], "--version")


def commit():
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False, capture_output=True)
    return first_line("git", "rev-parse", "--short", "HEAD") + (" with changes" if dirty.returncode else "")


def machine():
    return f"{slug(processor())}_{os.cpu_count()}core"


def record(name, text, where=None):
    """Writes docs/results/<name>_<where>.md; of this machine, unless told."""
    path = ROOT / f"docs/results/{name}_{where or machine()}.md"
    path.write_text(text)
    print(f"wrote {path.relative_to(ROOT)}")


def duration(value, unit):
    nanoseconds = value * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    for name, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {name}"
    return f"{nanoseconds:.3g} ns"


def rate(run):
    return f"{run['items_per_second']:.3g} /s" if "items_per_second" in run else ""


def allocations(run):
    return f"{run['allocations']:.3g}" if "allocations" in run else ""


def name(run):
    return f"`{run['name']}`" + (f" ({run['label']})" if run.get("label") else "")


def table(runs):
    """One row each; columns that no benchmark of these has are left out."""
    extra = [
        (title, cell)
        for title, cell in (("items", rate), ("allocations", allocations))
        if any(cell(run) for run in runs)
    ]
    titles = ["benchmark", "time", *(title for title, _ in extra), "runs"]
    yield "| " + " | ".join(titles) + " |"
    yield "|---|" + "---:|" * (len(titles) - 1)
    for run in runs:
        time = duration(run["cpu_time"], run["time_unit"])
        cells = [name(run), time, *(cell(run) for _, cell in extra), str(run["iterations"])]
        yield "| " + " | ".join(cells) + " |"


def fastest(runs):
    """Of each benchmark's repetitions (--benchmark_repetitions) the one that others on the machine disturbed least."""
    best = {}
    for run in runs:
        if run.get("run_type", "iteration") != "iteration" or "error_occurred" in run:
            continue
        known = best.get(run["name"])
        if known is None or run["cpu_time"] < known["cpu_time"]:
            best[run["name"]] = run
    return list(best.values())


def repetitions(runs):
    most = max(run.get("repetitions", 1) for run in runs)
    return [f"- Times: the least of {most} repetitions"] if most > 1 else []


def load(report):
    """Of the machine when the benchmarks began, over 1, 5 and 15 minutes."""
    return ", ".join(f"{x:.2f}" for x in report["context"].get("load_avg", [])) or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="which benchmarks: build/bench_<name>.json is read")
    parser.add_argument("--command", required=True, help="how they were run")
    arguments = parser.parse_args()

    report = json.loads((ROOT / f"build/bench_{arguments.name}.json").read_text())
    lines = [
        f"# Benchmarks of {arguments.name}",
        "",
        f"- Machine: {processor()}, {os.cpu_count()} cores visible; each benchmark uses one",
        f"- Compiler: {compiler()}, preset release",
        f"- Date: {datetime.date.today()}, commit {commit()}",
        f"- Load when they began (1, 5, 15 minutes): {load(report)}",
        *repetitions(report["benchmarks"]),
        f"- Command: `{arguments.command}`",
        "",
        *table(fastest(report["benchmarks"])),
        "",
    ]
    record(arguments.name, "\n".join(lines))


if __name__ == "__main__":
    main()

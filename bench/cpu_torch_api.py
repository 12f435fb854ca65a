#!/usr/bin/env python3
"""The CPU benchmark through fovea.torch: how much of the C interface's speed a PyTorch user gets.

Every row is timed three ways on the same tensors, in turn: torch's own (SDPA, or compiled flex_attention), Fovea through
its C interface with a ready plan, and Fovea through fovea.torch, where each call traces its modifier, finds its plan and
allocates its outputs. The bar is on the last column: within 5 % of the C interface at S = 1024.

  ./dev bench torch                     the table, about five minutes; writes docs/results/torch_api_<machine>.md
  ./dev bench torch --only 'f32 .*SDPA' --no-record
"""

import argparse
import datetime
import os
import re
import resource
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
sys.dont_write_bytecode = True
BAR = 0.05


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose name has this regular expression")
    parser.add_argument(
        "--threads", type=int, default=min(2, len(os.sched_getaffinity(0))), help="of each side (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each side in a round (%(default)s)")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where libfovea.so is (%(default)s)")
    parser.add_argument("--no-record", action="store_true", help="print, write nothing")
    return parser.parse_args()


def api_side(torch, data):
    """The row through fovea.torch, as a function to time, and what it computes."""
    from fovea.torch import create_block_mask, flex_attention

    row, mask, mod = data.row, data.mask(), data.mod()
    blocks = create_block_mask(mask, None, None, row.queries, row.keys) if mask else None
    options = {"score_mod": mod, "block_mask": blocks, "enable_gqa": row.heads != row.kv_heads}
    if row.direction == "forward":

        forward = lambda: flex_attention(data.q, data.k, data.v, **options)  # tensors without gradients, as for SDPA
        return forward, {"o": forward()}
    inputs = [x.detach().requires_grad_() for x in (data.q, data.k, data.v)]
    o = flex_attention(*inputs, **options)
    backward = lambda: torch.autograd.grad(o, inputs, data.grad_o, retain_graph=True)
    return backward, {"o": o, **dict(zip(("dq", "dk", "dv"), backward()))}


def measure(arguments, library, processors):
    import torch
    from cpu import rows, sides, timing

    torch.set_num_threads(arguments.threads)
    lines = [
        "| row | torch ms | C ms | fovea.torch ms | torch / C | torch / fovea.torch | fovea.torch / C |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    over, most_faults = [], 0
    table = [row for row in rows.table() if row.peer != "own" and re.search(arguments.only, row.name)]
    sides.start_threads(library, processors[: arguments.threads])
    for row in table:
        data = sides.Data(row)
        plan = sides.Fovea(library, data, None)
        plan.run()
        api, out = api_side(torch, data)
        error = sides.worst_error(data, {name: x.detach() for name, x in out.items()})
        peer = sides.torch_side(data)
        peer()
        times = timing.alternately([peer, plan.run, api], arguments.rounds, arguments.seconds)
        most_faults = max(most_faults, faults_per_call(api))
        torch_ms, c_ms, api_ms = (t.median * 1e3 for t in times)
        ratio = api_ms / c_ms
        wrong = "" if error <= 1 else " WRONG"
        if row.queries == rows.LENGTH and (ratio > 1 + BAR or wrong):
            over.append(row.name)
        lines.append(
            f"| {row.name}{wrong} | {torch_ms:.2f} | {c_ms:.2f} | {api_ms:.2f} | {torch_ms / c_ms:.2f} | "
            f"{torch_ms / api_ms:.2f} | {ratio:.3f} |"
        )
        print(lines[-1], flush=True)
    return lines, over, most_faults


def faults_per_call(function, calls=5):
    """Pages that the system had to map for one call: those of fresh outputs would be counted on one side only."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        function()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // calls


def main():
    arguments = parse_arguments()
    processors = sorted(os.sched_getaffinity(0))
    from cpu import fovea_c

    library = fovea_c.load(arguments.build, arguments.threads)
    import bench_report
    import fovea  # before torch, as the library
    import torch

    load = os.getloadavg()[0]
    lines, over, faults = measure(arguments, library, processors)
    busy = " **The machine was busy: no result.**" if load > 0.5 * len(processors) else ""
    head = [
        "# fovea.torch against its own C interface and PyTorch, on a CPU",
        "",
        f"- Machine: {bench_report.processor()}, {arguments.threads} threads, bound; load {load:.2f} before.{busy}",
        f"- Fovea {fovea.__version__}, torch {torch.__version__}; commit {bench_report.commit()}, {datetime.date.today()}",
        "- Command: `./dev bench torch`; medians of rounds that take turns. The bar: fovea.torch / C at most 1.05 at S = 1024.",
        f"- Fresh outputs of fovea.torch: at most {faults} page faults in a call; the C interface writes to the same memory each time.",
        f"- Over the bar: {', '.join(over) or 'none'}",
        "",
    ]
    text = "\n".join([*head, *lines, ""])
    print("\n" + text)
    if not (arguments.no_record or arguments.only):
        bench_report.record("torch_api", text)
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()

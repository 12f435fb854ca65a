#!/usr/bin/env python3
"""Fovea's CPU engine against PyTorch: SDPA and compiled flex_attention, forward and backward.

Both run in this process on the same tensors, in turn, with equally many threads, each bound to a processor of its
own. Every row is checked against float64 before it is timed. Run it on an idle machine; `./dev bench cpu` does,
with the environment and the build that it needs.

  ./dev bench cpu                          the whole table: about ten minutes
  ./dev bench cpu --quick                  fewer and shorter rounds, no long sequences: three minutes
  ./dev bench cpu --only 'f32 .*causal'    rows whose name has this pattern
  ./dev bench cpu --only backward --threads 1 --no-record
  ./dev bench cpu --isa avx2               both sides with AVX2 alone, on a processor that has more
  ./dev bench cpu --busy --only SDPA       beside other work: one thread, its processor time, the fastest calls

Writes docs/results/cpu_<machine>.md and .png, unless only some rows or other sizes were asked for.
"""
import argparse
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
sys.dont_write_bytecode = True


# What limits both sides to an instruction set: Fovea; torch's own code and compiled flex_attention; oneDNN; MKL. On AMD's
# processors MKL 2024 takes AVX2 whatever its variable says.
VARIABLES = {"avx2": {"FOVEA_CPU_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                      "MKL_ENABLE_INSTRUCTIONS": "AVX2"}}


def parse_arguments():
    head, _, tail = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(description=head, epilog=tail, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, shorter sequences")
    parser.add_argument("--only", metavar="PATTERN", help="rows whose name has this regular expression")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))), help="of each side (%(default)s)")
    parser.add_argument("--isa", choices=VARIABLES, help="the instruction set of both sides (the best there is)")
    parser.add_argument("--busy", action="store_true", help="one thread, processor time; nothing is written")
    parser.add_argument("--rounds", type=int, help="of each row (7; 5 with --quick)")
    parser.add_argument("--engine", help="Fovea's engine (its own choice)")
    parser.add_argument("--heads", type=int, help="instead of 8: for trying things out")
    parser.add_argument("--length", type=int, help="instead of 1024: for trying things out")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where libfovea.so is (%(default)s)")
    parser.add_argument("--no-record", action="store_true", help="print, write nothing")
    parser.add_argument("--no-extras", action="store_true", help="the table alone: no lengths, no first calls")
    arguments = parser.parse_args()
    if arguments.busy:
        arguments.threads, arguments.no_record = 1, True
    if not 1 <= arguments.threads <= len(os.sched_getaffinity(0)):
        parser.error(f"--threads {arguments.threads}: there are {len(os.sched_getaffinity(0))} processors")
    return arguments


def main():
    arguments = parse_arguments()
    processors = sorted(os.sched_getaffinity(0))
    os.environ.update(VARIABLES.get(arguments.isa, {}))
    from cpu import fovea_c
    library = fovea_c.load(arguments.build, arguments.threads)
    from cpu import measure, report  # torch comes with it
    run = measure.Run(arguments, library, processors)
    selected = [row for row in measure.rows_of(arguments) if re.search(arguments.only or "", row.name)]
    if not selected:
        names = "\n  ".join(row.name for row in measure.rows_of(arguments))
        sys.exit(f"cpu_vs_torch: no row has '{arguments.only}'; there are:\n  {names}")
    run.measure(selected)
    text = report.markdown(run)
    print("\n" + text)
    whole = not (arguments.only or arguments.heads or arguments.length or arguments.no_record)
    if whole:
        path = ROOT / "docs/results" / f"cpu_{run.slug()}"
        report.picture(run, path.with_suffix(".png"))
        path.with_suffix(".md").write_text(text + f"\n![ratios and efficiency]({path.name}.png)\n")
        print(f"wrote {path.relative_to(ROOT)}.md and .png")
    sys.exit(0 if run.passed() else 1)


if __name__ == "__main__":
    main()

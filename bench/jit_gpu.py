#!/usr/bin/env python3
"""Engine jit beside its peers on a GPU, in one process: torch's SDPA with FLASH_ATTENTION, compiled flex_attention, a copy.

The rows and how much of a peer's time ours may take stand in bench/gpu/jit_rows.txt. Medians of rounds in which ours and
the peer's calls alternate, by CUDA events, over two sets of random tensors that are each larger than the L2 cache.

  python bench/jit_gpu.py                    all rows, about three minutes; writes docs/results/jit_gpu_<gpu>.md
  python bench/jit_gpu.py --quick            flash measured, flex as stored, fewer rounds: 20 seconds, writes nothing
  python bench/jit_gpu.py --peers stored     no peer is run
  python bench/jit_gpu.py --only softcap,bias --engine cudnn --no-record
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def parse_arguments():
    head, _, tail = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=head, epilog=tail, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows, separated by commas; a beginning of a name will do")
    parser.add_argument("--engine", default="jit", help="Fovea's engine; '' lets it choose (%(default)s)")
    parser.add_argument("--peers", default="measured", choices=["measured", "stored"])
    parser.add_argument("--quick", action="store_true", help="flash measured, flex stored, fewer rounds")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each side of a measurement (%(default)s)")
    parser.add_argument("--json", default="", help="a file that gets the results as one line of JSON")
    parser.add_argument("--no-record", action="store_true", help="print, write nothing into docs/results/")
    parser.add_argument("--no-bars", action="store_true", help="exit with 0 also where a bar is missed")
    parser.add_argument("--warm", default="", help=argparse.SUPPRESS)  # a row: compile torch's side, then end
    return parser.parse_args()


arguments = parse_arguments()
if arguments.engine:
    os.environ["FOVEA_ENGINE"] = arguments.engine
# Compiled kernels of torch come to this process through files: see compile_peers().
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "fovea_bench_inductor"))
os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention import flex_attention as torch_flex  # noqa: E402

from bench.gpu.jit_rows import formula_of, read_rows  # noqa: E402

SETS = 2


class Tensors:
    """q, k, v and the gradient of o, SETS times; next() gives them in turn."""

    def __init__(self, row, device):
        b, h, hkv = row.size("b"), row.size("h"), row.size("hkv", row.size("h"))
        sq, skv, d = row.size("sq"), row.size("skv", row.size("sq")), row.size("d")
        shapes = [(b, h, sq, d), (b, hkv, skv, d), (b, hkv, skv, d)]
        make = lambda shape: torch.randn(shape, device=device, dtype=row.dtype)
        self.sets = [[make(shape).requires_grad_() for shape in shapes] for _ in range(SETS)]
        self.grads = [make(shapes[0]) for _ in range(SETS)]


class Side:
    """One implementation of a row: forward and backward of each set in turn."""

    def __init__(self, attend, tensors, learned):
        self.attend, self.tensors, self.learned, self.at = attend, tensors, list(learned), 0
        self.outputs = []

    def forward(self):
        self.at = (self.at + 1) % SETS
        with torch.no_grad():
            return self.attend(*self.tensors.sets[self.at])

    def prepare_backward(self):
        self.outputs = [self.attend(*one) for one in self.tensors.sets]

    def backward(self):
        self.at = (self.at + 1) % SETS
        wanted = self.tensors.sets[self.at] + self.learned
        grad = self.tensors.grads[self.at]
        return torch.autograd.grad(self.outputs[self.at], wanted, grad, retain_graph=True)


def ours(row, formula, tensors, device):
    from fovea.torch import create_block_mask, flex_attention

    sq, skv = row.size("sq"), row.size("skv", row.size("sq"))
    grouped = row.size("hkv", row.size("h")) != row.size("h")
    mask = formula.mask_mod and create_block_mask(formula.mask_mod, formula.mask_batch, None, sq, skv)
    attend = lambda q, k, v: flex_attention(q, k, v, formula.score_mod, mask, enable_gqa=grouped)
    return Side(attend, tensors, formula.learned)


def flash(row, formula, tensors, device):
    causal = formula.mask_mod is not None

    def attend(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return Side(attend, tensors, ())


def flex(row, formula, tensors, device):
    torch._dynamo.reset()
    length = row.size("sq")
    mask = formula.mask_mod and torch_flex.create_block_mask(
        formula.mask_mod, formula.mask_batch, None, length, length, device=device
    )
    compiled = torch.compile(torch_flex.flex_attention, dynamic=False)
    attend = lambda q, k, v: compiled(q, k, v, score_mod=formula.score_mod, block_mask=mask)
    return Side(attend, tensors, formula.learned)


PEERS = {"flash": flash, "flex": flex}


def one_time(call, calls):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def milliseconds(sides, seconds):
    """The median of each side's calls, in rounds: each side's turn is a few calls back to back."""
    for call in sides:
        call()
    first = [one_time(call, 2) for call in sides]
    calls = [max(1, min(8, round(4 / ms))) for ms in first]
    slowest = max(ms * n for ms, n in zip(first, calls))
    rounds = max(3, min(25, int(1000 * seconds / slowest)))
    times = [[] for _ in sides]
    for _ in range(rounds):
        for i, call in enumerate(sides):
            times[i].append(one_time(call, calls[i]))
    return [statistics.median(x) for x in times]


def apart(a, b):
    return float((a.float() - b.float()).norm() / b.float().norm())


def copy_bandwidth(device):
    """Bytes read and written per second."""
    count = 1 << 28
    source, target = (torch.randn(count, device=device) for _ in range(2))
    return 2 * 4 * count / (milliseconds([lambda: target.copy_(source)], 0.3)[0] / 1000)


def measure(row, device, stored, seconds):
    """name, direction -> ours ms, peer's ms (None: not measured here), how far their results are apart."""
    formula, tensors = formula_of(row, device), Tensors(row, device)
    mine = ours(row, formula, tensors, device)
    theirs = PEERS[row.peer](row, formula, tensors, device) if row.peer in PEERS and row.peer not in stored else None
    sides = [side for side in (mine, theirs) if side]
    found = {}

    def add(direction, calls, first):
        times = milliseconds(calls, seconds)
        for side in sides:
            side.at = 0  # the same tensors for both
        differ = apart(*(first(call()) for call in calls)) if theirs else None
        found[direction] = {"ours": times[0], "peer": times[1] if theirs else None, "apart": differ}

    add("forward", [side.forward for side in sides], lambda o: o)
    if row.has_backward:
        for side in sides:
            side.prepare_backward()
        add("backward", [side.backward for side in sides], lambda gradients: gradients[0])
    return found


def compile_peers(rows):
    """Each row of flex_attention in a process of its own, all at once: 20 to 40 seconds each on one core. This process
    then finds the kernels in the files of torch's caches."""
    names = [row.name for row in rows if row.peer == "flex"]

    def compile_one(name):
        command = [sys.executable, __file__, "--warm", name]
        return name, subprocess.run(command, capture_output=True, text=True)

    with concurrent.futures.ThreadPoolExecutor(max(1, len(names))) as pool:
        for name, done in pool.map(compile_one, names):
            if done.returncode:
                print(f"{name}: torch does not compile it: {done.stderr.strip().splitlines()[-1:]}", flush=True)


def warm(row, device):
    formula, tensors = formula_of(row, device), Tensors(row, device)
    side = flex(row, formula, tensors, device)
    side.forward()
    side.prepare_backward()
    side.backward()
    torch.cuda.synchronize()


def judge(row, direction, one, found, copy):
    """Fills in what the peer takes, from where it is known, and whether the bar is met (None: there is none)."""
    goal = getattr(row, direction)
    one["bar"], one["measured"] = goal.bar, one["peer"] is not None
    if row.peer == "copy":
        keys = row.size("b") * row.size("hkv") * row.size("skv") * row.size("d")
        one["peer"], one["measured"] = 2 * keys * row.dtype.itemsize / copy * 1000, True
    elif one["peer"] is None:
        own = found.get(row.peer, {}).get(direction)
        one["peer"], one["measured"] = (own["ours"], True) if own else (goal.peer_ms, False)
    known = one["peer"] is not None
    one["ratio"] = one["ours"] / one["peer"] if known else None
    one["met"] = one["ratio"] <= goal.bar if known and goal.bar is not None else None


def table(rows, found):
    yield "| row | peer | direction | ours ms | peer ms | ratio | bar | | apart |"
    yield "|---|---|---|---:|---:|---:|---:|---|---:|"
    shown = lambda x, form: "-" if x is None else form.format(x)
    for row in rows:
        for direction, one in found.get(row.name, {}).items():
            if "error" in one:
                yield f"| {row.name} | {row.peer} | {direction} | {one['error']} | | | | MISSED | |"
                continue
            mark = {None: "", True: "ok", False: "MISSED"}[one["met"]]
            peer = row.peer + ("" if one["measured"] else ", stored")
            yield (
                f"| {row.name} | {peer} | {direction} | {one['ours']:.3f} | {shown(one['peer'], '{:.3f}')} | "
                f"{shown(one['ratio'], '{:.3f}')} | {shown(one['bar'], '{:.3g}')} | {mark} | {shown(one['apart'], '{:.1e}')} |"
            )


def wanted_rows():
    rows, names = read_rows(), [name.strip() for name in arguments.only.split(",") if name.strip()]
    if not names:
        return rows
    chosen = [row for row in rows if any(row.name.startswith(name) for name in names)]
    return chosen or sys.exit(f"jit_gpu: no such row; there are: {', '.join(row.name for row in rows)}")


def main():
    if not torch.cuda.is_available():
        sys.exit("jit_gpu: torch sees no GPU")
    device = torch.device("cuda", 0)
    if arguments.warm:
        return warm(next(row for row in read_rows() if row.name == arguments.warm), device)
    import fovea

    began, rows, found = time.perf_counter(), wanted_rows(), {}
    quick = arguments.quick
    stored = ("flash", "flex") if arguments.peers == "stored" else ("flex",) if quick else ()
    if "flex" not in stored:
        compile_peers(rows)
        print(f"[{time.perf_counter() - began:5.0f} s] torch's kernels are compiled", flush=True)
    copy = copy_bandwidth(device)
    for row in rows:
        try:
            found[row.name] = measure(row, device, stored, 0.1 if quick else arguments.seconds)
            for direction, one in found[row.name].items():
                judge(row, direction, one, found, copy)
        except Exception as error:  # a row that fails is a row of the table
            found[row.name] = {"forward": {"error": " ".join(str(error).split())[:160], "met": False}}
        torch.cuda.empty_cache()
        for line in list(table([row], found))[2:]:
            print(f"[{time.perf_counter() - began:5.0f} s] {line}", flush=True)
    return finish(rows, found, copy, time.perf_counter() - began, fovea.__version__)


def finish(rows, found, copy, seconds, version):
    name = torch.cuda.get_device_name(0)
    head = [
        f"# Engine {arguments.engine or 'as chosen'} beside its peers: {name}",
        "",
        f"- Fovea {version}, torch {torch.__version__}, CUDA {torch.version.cuda}, {datetime.date.today()}; "
        f"device-to-device copy {copy / 1e12:.2f} TB/s",
        "- Milliseconds on the device, backward alone; medians of rounds in which both sides alternate. Ratio: ours by the "
        "peer's. Apart: the relative difference of o, or of dQ.",
        f"- Command: `python bench/jit_gpu.py {' '.join(sys.argv[1:])}`".rstrip() + f", {seconds:.0f} s in all",
        "",
    ]
    text = "\n".join([*head, *table(rows, found), ""])
    print(text)
    line = json.dumps({"gpu": name, "copy_tb_s": copy / 1e12, "rows": found})
    print(line)
    if arguments.json:
        Path(arguments.json).write_text(line + "\n")
    if not (arguments.no_record or arguments.only or arguments.quick or arguments.peers == "stored"):
        path = ROOT / "docs/results" / f"jit_gpu_{'_'.join(re.findall(r'[a-z0-9]+', name.lower()))}.md"
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
    missed = [f"{row} {d}" for row, both in found.items() for d, one in both.items() if one.get("met") is False]
    print("missed: " + ", ".join(missed) if missed else "every bar is met")
    return 1 if missed and not arguments.no_bars else 0


if __name__ == "__main__":
    sys.exit(main())

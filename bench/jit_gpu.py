#!/usr/bin/env python3
"""Engine jit beside its peers on a GPU, in one process: cuDNN, compiled flex_attention, torch's SDPA, a copy.

The rows and how much of a peer's time ours may take stand in bench/gpu/hopper_rows.txt and general_rows.txt. Medians of
rounds in which ours and the peers' calls alternate, by CUDA events, over two sets of random tensors that are each larger
than the L2 cache.

  python bench/jit_gpu.py                    the kernels for sm_90: all rows; writes docs/results/jit_hopper_<gpu>.md
  python bench/jit_gpu.py --tier general     the kernels for sm_80 and newer: docs/results/jit_general_<gpu>.md
  python bench/jit_gpu.py --quick            flex as stored, fewer rounds: 20 seconds, writes nothing
  python bench/jit_gpu.py --peers stored     no peer is run
  python bench/jit_gpu.py --only softcap,bias --no-record
"""

import argparse
import concurrent.futures
import datetime
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]


def parse_arguments():
    head, _, tail = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=head, epilog=tail, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows, separated by commas; causal* are all that begin so")
    parser.add_argument("--tier", default="hopper", choices=["hopper", "general"], help="which kernels of engine jit")
    parser.add_argument("--peers", default="measured", choices=["measured", "stored"])
    parser.add_argument("--quick", action="store_true", help="flex stored, the others measured, fewer rounds")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each side of a measurement (%(default)s)")
    parser.add_argument("--json", default="", help="a file that gets the results as one line of JSON")
    parser.add_argument("--no-record", action="store_true", help="print, write nothing into docs/results/")
    parser.add_argument("--no-bars", action="store_true", help="exit with 0 also where a bar is missed")
    parser.add_argument("--warm", default="", help=argparse.SUPPRESS)  # a row: compile torch's side, then end
    return parser.parse_args()


arguments = parse_arguments()
if arguments.tier == "general":
    os.environ["FOVEA_JIT_TIER"] = "general"
# Compiled kernels of torch come to this process through files: see compile_peers().
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "fovea_bench_inductor"))
os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention import flex_attention as torch_flex  # noqa: E402

import bench_report  # noqa: E402
from bench.gpu.rows import Formula, formula_of, read_rows  # noqa: E402

SETS = 2


class Tensors:
    """q, k, v and the gradient of o, SETS times."""

    def __init__(self, row, device, packed=False):
        h, hkv, d = row.size("h"), row.size("hkv", row.size("h")), row.size("d")
        if packed:
            shapes = [(row.starts[-1], heads, d) for heads in (h, hkv, hkv)]
        else:
            b, sq = row.size("b", 4), row.size("sq") if not row.starts else row.starts[-1] // 4
            skv = row.size("skv", sq) if not row.starts else sq
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


def by_engine(engine):
    """A side that is fovea.torch with this engine."""

    def make(row, formula, tensors, device):
        from fovea.torch import attention

        options = {"engine": engine, "score_mod": formula.score_mod, "mask_mod": formula.mask_mod}
        if row.words.get("mask") == "causal":
            options.update(mask_mod=None, is_causal=True)
        if row.starts:
            starts = torch.tensor(row.starts, dtype=torch.int32, device=device)
            options.update(layout="thd", cu_seqlens=starts, max_seqlen=row.size("sq"))
        if "sink" in row.words:
            options["sinks"] = torch.zeros(row.size("h"), device=device)
        if "dropout" in row.words:
            options.update(dropout_p=float(row.words["dropout"]), seed=1)
        if "deterministic" in row.words:
            options["deterministic"] = True
        return Side(lambda q, k, v: attention(q, k, v, **options), tensors, formula.learned)

    return make


def by_sdpa(backend):
    """A side that is torch's scaled_dot_product_attention; dropout by numbers of its own."""

    def make(row, formula, tensors, device):
        options = {"is_causal": formula.mask_mod is not None, "dropout_p": float(row.words.get("dropout", 0))}

        def attend(q, k, v):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        return Side(attend, tensors, ())

    return make


def flex(row, formula, tensors, device):
    torch._dynamo.reset()
    if row.starts:  # not packed, but as many documents in sequences of one length
        formula, tensors = documents_of(row, device), Tensors(row, device)
    length = tensors.sets[0][0].shape[2]
    mask = formula.mask_mod and torch_flex.create_block_mask(
        formula.mask_mod, formula.mask_batch, None, length, length, device=device
    )
    grouped = row.size("hkv", row.size("h")) != row.size("h")
    compiled = torch.compile(torch_flex.flex_attention, dynamic=False)
    attend = lambda q, k, v: compiled(q, k, v, score_mod=formula.score_mod, block_mask=mask, enable_gqa=grouped)
    return Side(attend, tensors, formula.learned)


def documents_of(row, device):
    """The packed sequences of a row, four times a quarter of them: none of them lies in two quarters."""
    starts = torch.tensor(row.starts[1:-1], device=device)
    number = (torch.arange(row.starts[-1], device=device)[:, None] >= starts).sum(1, dtype=torch.int32).view(4, -1)
    return Formula(mask_mod=lambda b, h, q, k: number[b, q] == number[b, k], mask_batch=4)


PEERS = {
    "flash": by_sdpa(SDPBackend.FLASH_ATTENTION),
    "flex": flex,
    "cudnn": by_engine("cudnn"),
    "cudnn_sdpa": by_sdpa(SDPBackend.CUDNN_ATTENTION),
}


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
    """direction -> ours ms, peers' ms by name (those that are measured here), how far ours is from the first of them."""
    formula, tensors = formula_of(row, device), Tensors(row, device, packed=bool(row.starts))
    sides = {"ours": by_engine("jit")(row, formula, tensors, device)}
    for peer in row.peers:
        if peer in PEERS and peer not in stored:
            sides[peer] = PEERS[peer](row, formula, tensors, device)
    found = {}

    def add(direction, calls, result):
        times = dict(zip(sides, milliseconds(list(calls.values()), seconds)))
        for side in sides.values():
            side.at = 0  # the same tensors for all
        first = [result(call()) for call in list(calls.values())[:2]]
        comparable = len(first) == 2 and first[0].shape == first[1].shape and "dropout" not in row.words
        differ = apart(*first) if comparable else None
        found[direction] = {"ours": times.pop("ours"), "peers": times, "apart": differ}

    add("forward", {name: side.forward for name, side in sides.items()}, lambda o: o)
    if row.has_backward:
        for side in sides.values():
            side.prepare_backward()
        add("backward", {name: side.backward for name, side in sides.items()}, lambda gradients: gradients[0])
    return found


def compile_peers(rows):
    """Each row of flex_attention in a process of its own, all at once: 20 to 40 seconds each on one core. This process
    then finds the kernels in the files of torch's caches."""
    names = [row.name for row in rows if "flex" in row.peers]

    def compile_one(name):
        command = [sys.executable, __file__, "--tier", arguments.tier, "--warm", name]
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
    """Fills in what the best peer takes, from where it is known, and whether the bar is met (None: there is none)."""
    goal, peers = getattr(row, direction), one["peers"]
    own = next((found[name].get(direction) for name in row.peers if name in found), None)
    if "copy" in row.peers:
        keys = row.size("b") * row.size("hkv") * row.size("skv") * row.size("d")
        peers["copy"] = 2 * keys * row.dtype.itemsize / copy * 1000
    elif own:
        peers[row.peers[0]] = own["ours"]
    elif not peers and goal.peer_ms is not None:
        peers[f"{row.peers[0]}, stored"] = goal.peer_ms
    best = min(peers, key=peers.get, default=None)
    one.update(bar=goal.bar, best=best, peer=peers.get(best))
    one["ratio"] = one["ours"] / one["peer"] if best else None
    one["met"] = one["ratio"] <= goal.bar if best and goal.bar is not None else None


def table(rows, found):
    yield "| row | best peer | direction | ours ms | peer ms | ratio | bar | | apart |"
    yield "|---|---|---|---:|---:|---:|---:|---|---:|"
    shown = lambda x, form: "-" if x is None else form.format(x)
    for row in rows:
        for direction, one in found.get(row.name, {}).items():
            if "error" in one:
                yield f"| {row.name} | {' '.join(row.peers)} | {direction} | {one['error']} | | | | MISSED | |"
                continue
            mark = {None: "", True: "ok", False: "MISSED"}[one["met"]]
            yield (
                f"| {row.name} | {one['best'] or '-'} | {direction} | {one['ours']:.3f} | {shown(one['peer'], '{:.3f}')} | "
                f"{shown(one['ratio'], '{:.3f}')} | {shown(one['bar'], '{:.3g}')} | {mark} | {shown(one['apart'], '{:.1e}')} |"
            )


def wanted_rows():
    rows, names = read_rows(arguments.tier), [name.strip() for name in arguments.only.split(",") if name.strip()]
    if not names:
        return rows
    chosen = [row for row in rows if any(fnmatch.fnmatchcase(row.name, name) for name in names)]
    return chosen or sys.exit(f"jit_gpu: no such row; there are: {', '.join(row.name for row in rows)}")


def main():
    if not torch.cuda.is_available():
        sys.exit("jit_gpu: torch sees no GPU")
    device = torch.device("cuda", 0)
    if arguments.warm:
        return warm(next(row for row in read_rows(arguments.tier) if row.name == arguments.warm), device)
    import fovea

    began, rows, found = time.perf_counter(), wanted_rows(), {}
    quick = arguments.quick
    stored = tuple(PEERS) if arguments.peers == "stored" else ("flex",) if quick else ()
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
            found[row.name] = {"forward": {"error": textwrap.shorten(str(error), 160, placeholder=" ..."), "met": False}}
        torch.cuda.empty_cache()
        for line in list(table([row], found))[2:]:
            print(f"[{time.perf_counter() - began:5.0f} s] {line}", flush=True)
    return finish(rows, found, copy, time.perf_counter() - began, fovea.__version__)


def finish(rows, found, copy, seconds, version):
    name = torch.cuda.get_device_name(0)
    head = [
        f"# Engine jit, {arguments.tier} kernels, beside its peers: {name}",
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
        bench_report.record(f"jit_{arguments.tier}", text, bench_report.slug(name))
    missed = [f"{row} {d}" for row, both in found.items() for d, one in both.items() if one.get("met") is False]
    print("missed: " + ", ".join(missed) if missed else "every bar is met")
    return 1 if missed and not arguments.no_bars else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Context parallelism: time and bytes on two processes, and a model of both for 8 to 1,024 GPUs.

  ./dev python bench/parallel.py                      two processes with one thread each on gloo, beside one process with two
                                                      threads: a minute
  ./dev python bench/parallel.py --model              the table of the model, from the plans of the library
  ./dev python bench/parallel.py --picture FILE.png   the same as a picture (needs matplotlib)
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from fovea import _core
from fovea.torch import attention, context_parallel, shard_sequence
from fovea.torch.context_transport import Ranks

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import bench_report  # noqa: E402

module = sys.modules["fovea.torch.context_parallel"]  # not the function of that name

B, H, S, D, ROUNDS = 1, 4, 2048, 64, 7
STRATEGIES = ("ring", "all_gather", "all_to_all")


def cases():
    document = torch.arange(S) // (S // 8)
    return {
        "none": ({}, "contiguous"),
        "causal": ({"is_causal": True}, "zigzag"),
        "sliding": ({"is_causal": True, "window_size": (255, 0)}, "contiguous"),
        "documents": ({"mask_mod": lambda b, h, q, k: document[q] == document[k]}, "contiguous"),
    }


def inputs():
    make = torch.Generator().manual_seed(1)
    return [torch.randn(B, H, S, D, generator=make) for _ in range(4)]


def seconds(function, before=lambda: None):
    times = []
    for _ in range(ROUNDS):
        before()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)  # what else the machine does is not counted


def step(attend, tensors, grad):
    q, k, v = (x.detach().requires_grad_() for x in tensors)
    attend(q, k, v).backward(grad)


def one_process(results):
    torch.set_num_threads(2)
    *tensors, grad = inputs()
    for name, (options, _) in cases().items():
        run = lambda: step(lambda *x: attention(*x, **options), tensors, grad)
        run()
        results[name, "one process"] = seconds(run)


def two_processes(rank, store, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for name, (options, order) in cases().items():
        *tensors, grad = [shard_sequence(x, 2, rank, order=order) for x in inputs()]
        for strategy in STRATEGIES:
            attend = lambda *x: context_parallel(*x, strategy=strategy, order=order, **options)
            sent, plan = counted(lambda: step(attend, tensors, grad))
            if sent != sum(plan.bytes.values()):
                raise RuntimeError(f"{name}, {strategy}: {sent} bytes sent, {plan.bytes} planned")
            taken = torch.tensor([seconds(lambda: step(attend, tensors, grad), dist.barrier), float(sent)])
            dist.all_reduce(taken, dist.ReduceOp.MAX)  # of the slower process
            if rank == 0:
                steps = sum(1 for step in plan.steps if step["tiles"])
                results[name, strategy] = (*taken.tolist(), f"{steps}/{len(plan.steps)}")
    dist.barrier()
    dist.destroy_process_group()


def counted(function):
    """Bytes that this rank sends in a step of training, and the plan of it."""
    total, plans, exchange, planned = [0], [], Ranks.exchange, module.plan_of

    def counting(self, *arguments):
        before = self.sent_bytes
        out = exchange(self, *arguments)
        total[0] += self.sent_bytes - before
        return out

    def noting(*arguments):
        plans.append(planned(*arguments))
        return plans[-1]

    Ranks.exchange, module.plan_of = counting, noting
    try:
        function()
    finally:
        Ranks.exchange, module.plan_of = exchange, planned
    return total[0], plans[0]


def measure():
    with tempfile.TemporaryDirectory() as folder, mp.Manager() as manager:
        results = manager.dict()
        alone = mp.get_context("spawn").Process(target=one_process, args=(results,))
        alone.start()
        alone.join()
        mp.spawn(two_processes, args=(folder + "/store", results), nprocs=2)
        return dict(results)


def report(results, load) -> str:
    """As docs/results has it."""
    head = lambda columns: f"| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}"
    row = lambda name, cells: f"| {name} | {' | '.join(cells)} |"
    times = [
        row(name, [f"{results[name, 'one process'] * 1e3:.0f}", *(f"{results[name, s][0] * 1e3:.0f}" for s in STRATEGIES)])
        for name in cases()
    ]
    sent = [row(name, [f"{results[name, s][1] / 2**20:.2f}, {results[name, s][2]}" for s in STRATEGIES]) for name in cases()]
    now = datetime.datetime.now()
    return f"""# Context parallelism in two processes on one CPU

{now:%Y-%m-%d, %H:%M}, commit {bench_report.commit()}, {bench_report.processor()}, {os.cpu_count()} cores, load {load:.2f} before, torch
{torch.__version__} with gloo, {bench_report.compiler()}. Command: `./dev python bench/parallel.py --write`.

[{B}, {H}, {S}, {D}] in f32, forward and backward, the best of {ROUNDS} rounds: ms of the slower process. One process has two threads, two
processes have one each. Causal is distributed as zigzag, the others contiguously; eight documents end where the sequence is split;
the window is 256 keys.

{head(["one process", *STRATEGIES])}
{chr(10).join(times)}

MiB that the busier process sends, counted (the benchmark stops if the plan has another number of bytes), and in how many of all
steps the first process computes something:

{head(STRATEGIES)}
{chr(10).join(sent)}

Masked steps are skipped: documents send nothing. An all-to-all sends the same whatever is masked. With all_gather under a causal
mask, a rank's two pieces of queries are two calls over all gathered keys.
"""


# ---- the model ----

NVLINK = 450e9  # bytes a second of a GPU, each way: NVLink 4
INFINIBAND = 50e9  # the same: one NDR port of 400 Gbit/s per GPU
FORWARD, BACKWARD = 620e12, 510e12  # operations a second: row "causal" of docs/results/jit_hopper_nvidia_h200.md
NODE = 8  # GPUs that NVLink connects
LINE = "h=32 hkv=8 sq=1048576 d=128 dtype=bf16 mask=causal"
RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)


def model(strategy, ranks):
    """(bytes sent in a step of training, seconds) of the busiest rank, or None if it does not go. A ring computes while it
    sends, the others send first."""
    words = dict(word.split("=", 1) for word in LINE.split())
    heads, keys, length, features = (int(words[key]) for key in ("h", "hkv", "sq", "d"))
    head_ranks = {"all_to_all": ranks, "a2a+p2p": NODE}.get(strategy, 1)
    if keys % head_ranks:
        return None
    how = (ranks, strategy, "zigzag", head_ranks if strategy == "a2a+p2p" else 0)
    problem = _core.Problem(LINE)
    most, longest = 0, 0.0
    for rank in {0, ranks // 2, ranks - 1}:
        plan = json.loads(_core.parallel_plan(problem, how, rank))
        scores = length * (length + 1) / 2 * heads / ranks  # of a causal mask, which zigzag shares evenly
        computed = [scores * 4 * features / FORWARD, scores * 10 * features / BACKWARD]
        sent = [plan["bytes"]["forward"], plan["bytes"]["backward"]]
        dealt = 0
        if head_ranks > 1:
            rows = sum(sum(plan["q"]["rows"][i]) for i in {rank, len(plan["q"]["rows"]) - 1 - rank})
            dealt = rows * (heads + keys) * 2 * features * 2 * (head_ranks - 1) // head_ranks
        inside = NVLINK if max(head_ranks, 1) <= NODE else INFINIBAND
        between = NVLINK if ranks <= NODE else INFINIBAND
        total = 0.0
        for seconds_of, bytes_of in zip(computed, sent):
            ring = (bytes_of - dealt) / between
            total += dealt / inside + (max(seconds_of, ring) if strategy != "all_gather" else seconds_of + ring)
        most, longest = max(most, sum(sent)), max(longest, total)
    return most, longest


def table():
    rows = {}
    for ranks in RANKS:
        for strategy in ("ring", "all_gather", "all_to_all", "a2a+p2p"):
            rows[strategy, ranks] = model(strategy, ranks)
    return rows


def print_model():
    rows = table()
    print(f"{LINE}: GB sent by the busiest GPU in a step of training, and ms")
    print(f"{'GPUs':>6}" + "".join(f"{s:>22}" for s in ("ring", "all_gather", "all_to_all", "a2a+p2p")))
    for ranks in RANKS:
        cells = [rows[s, ranks] for s in ("ring", "all_gather", "all_to_all", "a2a+p2p")]
        text = [f"{x[0] / 1e9:12.2f} {x[1] * 1e3:9.1f}" if x else f"{'-':>22}" for x in cells]
        print(f"{ranks:6}" + "".join(text))


def picture(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = table()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    length, heads = 1048576, 32
    alone = length * (length + 1) / 2 * heads * 128 * (4 / FORWARD + 10 / BACKWARD)
    styles = {"ring": "o-", "all_gather": "s--", "a2a+p2p": "d-", "all_to_all": "k+"}
    for strategy, style in styles.items():
        found = [(n, rows[strategy, n]) for n in RANKS if rows[strategy, n]]
        look = {"label": strategy, "markersize": 14 if strategy == "all_to_all" else 6}
        left.plot([n for n, _ in found], [x[0] / 1e9 for _, x in found], style, **look)
        right.plot([n for n, _ in found], [alone / n / x[1] * 100 for n, x in found], style, **look)
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xticks(RANKS, [str(n) for n in RANKS])
        axis.set_xlabel("GPUs")
        axis.grid(alpha=0.3)
        axis.legend()
    left.set_ylim(0, 14)
    left.set_ylabel("GB sent by a GPU, forward and backward")
    right.set_ylabel("% of the computation's own speed")
    right.set_ylim(0, 105)
    figure.suptitle("One attention over 1,048,576 tokens, 32 heads (8 of keys) of 128, bf16, causal, zigzag")
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/results/parallel_<machine>.md")
    parser.add_argument("--model", action="store_true", help="print the model's table instead")
    parser.add_argument("--picture", metavar="FILE.png", help="draw the model instead")
    arguments = parser.parse_args()
    if arguments.picture:
        picture(arguments.picture)
    elif arguments.model:
        print_model()
    else:
        load = os.getloadavg()[0]
        text = report(measure(), load)
        print(text)
        if arguments.write:
            bench_report.record("parallel", text)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""fovea.torch beside compiled torch.nn.attention.flex_attention on a GPU.

For each modifier or mask: milliseconds forward and forward + backward of both and their ratio, the first call of both,
the peak of allocated memory, and the host's time of a cached eager call. What Fovea refuses is a row with its reason.

  python bench/torch_gpu.py                 B4 H16 S4096 D128 bf16: under four minutes; writes docs/results/torch_gpu_<gpu>.md
  python bench/torch_gpu.py --only causal,alibi --length 2048 --no-record
"""

import argparse
import datetime
import re
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn.attention import flex_attention as torch_flex

import fovea
from fovea.torch import create_block_mask, flex_attention

ROOT = Path(__file__).resolve().parent.parent


def parse_arguments():
    head, _, tail = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=head, epilog=tail, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    parser.add_argument("--calls", type=int, default=20, help="timed calls of each (%(default)s)")
    parser.add_argument(
        "--budget",
        type=float,
        default=210,
        help="seconds after which torch is no longer compiled (%(default)s)",
    )
    parser.add_argument("--no-record", action="store_true", help="print, write nothing")
    return parser.parse_args()


def rows(n, device):
    """name -> (score_mod, mask_mod), made when they are needed: a bias is large."""

    def bias():
        table = torch.randn(n.heads, n.length, n.length, device=device, dtype=getattr(torch, n.dtype))
        return (lambda s, b, h, q, k: s + table[h, q, k]), None

    def documents():
        doc = (torch.arange(n.length, device=device) // 512).to(torch.int32)
        return None, lambda b, h, q, k: doc[q] == doc[k]

    return {
        "none": lambda: (None, None),
        "causal": lambda: (None, lambda b, h, q, k: q >= k),
        "softcap 20": lambda: ((lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0)), None),
        "alibi": lambda: ((lambda s, b, h, q, k: s + torch.exp2(-8.0 * (h + 1) / n.heads) * (k - q)), None),
        "bias [H, S, S]": bias,
        "sliding 1024": lambda: (None, lambda b, h, q, k: (q >= k) & (q - k < 1024)),
        "documents of 512": documents,
        "softcap, causal": lambda: (
            (lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0)),
            lambda b, h, q, k: q >= k,
        ),
    }


def milliseconds(function, calls):
    """The median of calls timed one by one on the device."""
    for _ in range(3):
        function()
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)
    ]
    for start, end in pairs:
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def first_call(function):
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = function()
    torch.cuda.synchronize()
    return time.perf_counter() - start, out


def side(attend, tensors, grad, calls):
    """first call, ms forward, output; and of a step forward + backward: first, ms, peak bytes, or why it is refused."""
    plain = [x.detach() for x in tensors]
    with torch.no_grad():
        first, out = first_call(lambda: attend(*plain))
        forward = milliseconds(lambda: attend(*plain), calls)
    found = {"first": first, "forward": forward, "out": out, "first_step": None, "step": None, "peak": None}

    def step():
        return torch.autograd.grad(attend(*tensors), tensors, grad)

    try:
        found["first_step"], _ = first_call(step)
    except fovea.Error as error:
        return {**found, "refusal": "backward: " + " ".join(str(error).split())}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    found["peak"] = torch.cuda.max_memory_allocated() - before
    found["step"] = milliseconds(step, calls)
    return found


def host_microseconds(score_mod, mask_mod, n, device, modes):
    """Of a cached eager forward call, without and with gradients: a small problem, so that the GPU never holds it up."""
    q, k, v = (
        torch.randn(1, n.heads, 128, n.width, device=device, dtype=getattr(torch, n.dtype)) for _ in range(3)
    )
    block = mask_mod and create_block_mask(mask_mod, None, None, 128, 128)
    found = []
    for needs in modes:
        tensors = [x.requires_grad_(needs) for x in (q, k, v)]
        times = []
        for _ in range(30):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(20):
                flex_attention(*tensors, score_mod, block)
            times.append((time.perf_counter() - start) / 20)
        found.append(statistics.median(times) * 1e6)
    return found


def measure(name, make, n, device, late):
    score_mod, mask_mod = make()
    shape = (n.batch, n.heads, n.length, n.width)
    tensors = [
        torch.randn(shape, device=device, dtype=getattr(torch, n.dtype), requires_grad=True) for _ in range(3)
    ]
    grad = torch.randn_like(tensors[0])
    row = {"name": name}
    ours_mask = mask_mod and create_block_mask(mask_mod, None, None, n.length, n.length)
    try:
        row["fovea"] = side(
            lambda q, k, v: flex_attention(q, k, v, score_mod, ours_mask), tensors, grad, n.calls
        )
        trains = "refusal" not in row["fovea"]
        row["engine"] = engine_of(score_mod, mask_mod, tensors if trains else [x.detach() for x in tensors])
        row["host"] = host_microseconds(score_mod, mask_mod, n, device, (False, True) if trains else (False,))
        if not trains:
            row["refusal"] = row["fovea"]["refusal"]
    except fovea.Error as error:
        row["refusal"] = " ".join(str(error).split())
    if late():
        row["skipped"] = "torch not compiled: over the time budget"
        return row
    torch._dynamo.reset()
    start = time.perf_counter()
    theirs_mask = mask_mod and torch_flex.create_block_mask(
        mask_mod, None, None, n.length, n.length, device=device
    )
    row["mask"] = time.perf_counter() - start
    compiled = torch.compile(torch_flex.flex_attention, dynamic=False)
    row["torch"] = side(
        lambda q, k, v: compiled(q, k, v, score_mod=score_mod, block_mask=theirs_mask), tensors, grad, n.calls
    )
    if "fovea" in row:
        apart = (row["fovea"]["out"].float() - row["torch"]["out"].float()).norm() / row["torch"][
            "out"
        ].float().norm()
        row["apart"] = float(apart)
    return row


def engine_of(score_mod, mask_mod, tensors):
    return fovea.torch.explain(*tensors, score_mod=score_mod, mask_mod=mask_mod).chosen or "?"


def table(found):
    yield (
        "| | engine | forward ms: Fovea, torch | ratio | forward + backward ms | ratio | first call s; first step s: Fovea, torch | "
        "peak MiB of a step | host us: forward, with gradients | apart |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in found:
        ours, theirs = row.get("fovea"), row.get("torch")
        shown = lambda x, key, form, scale: form.format(x[key] * scale) if x and x[key] is not None else "-"
        both = lambda key, form, scale=1.0: ", ".join(shown(x, key, form, scale) for x in (ours, theirs))
        known = lambda key: ours and theirs and ours[key] is not None and theirs[key] is not None
        ratio = lambda key: f"{theirs[key] / ours[key]:.2f}" if known(key) else "-"
        firsts = both("first", "{:.2f}") + "; " + both("first_step", "{:.2f}")
        host = ", ".join(f"{x:.0f}" for x in row["host"]) if "host" in row else "-"
        apart = f"{row['apart']:.1e}" if "apart" in row else "-"
        yield (
            f"| {row['name']} | {row.get('engine', 'refused')} | {both('forward', '{:.3f}')} | {ratio('forward')} | "
            f"{both('step', '{:.3f}')} | {ratio('step')} | {firsts} | {both('peak', '{:.0f}', 2.0**-20)} | {host} | {apart} |"
        )
    yield ""
    for row in found:
        for key in ("refusal", "skipped"):
            if key in row:
                yield f"- {row['name']}: {row[key]}"


def main():
    n = parse_arguments()
    if not torch.cuda.is_available():
        sys.exit("torch_gpu: torch sees no GPU")
    began, device = time.perf_counter(), torch.device("cuda", torch.cuda.current_device())
    every = rows(n, device)
    wanted = [name.strip() for name in n.only.split(",") if name.strip()] or list(every)
    unknown = [name for name in wanted if name not in every]
    if unknown:
        sys.exit(f"torch_gpu: no row '{unknown[0]}'; there are: {', '.join(every)}")
    late = lambda: time.perf_counter() - began > n.budget
    found = []
    for name in wanted:
        found.append(measure(name, every[name], n, device, late))
        torch.cuda.empty_cache()
        print(
            f"[{time.perf_counter() - began:5.0f} s] {name}: "
            + (found[-1].get("refusal") or found[-1]["engine"]),
            flush=True,
        )
    name = torch.cuda.get_device_name(device)
    shape = f"B{n.batch} H{n.heads} S{n.length} D{n.width} {n.dtype}"
    head = [
        f"# fovea.torch beside compiled flex_attention: {name}",
        "",
        f"- {shape}; Fovea {fovea.__version__}, torch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"cuDNN {torch.backends.cudnn.version()}, {datetime.date.today()}",
        "- Times on the device, medians. Ratios are torch's time by Fovea's: above 1 Fovea is faster. First calls include all "
        "building and compiling; a second process finds torch's in its caches.",
        "- Host: a cached eager call of flex_attention at S = 128.",
        f"- Command: `python bench/torch_gpu.py`, {time.perf_counter() - began:.0f} s in all",
        "",
    ]
    text = "\n".join([*head, *table(found), ""])
    print(text)
    if not (n.no_record or n.only):
        path = ROOT / "docs/results" / f"torch_gpu_{'_'.join(re.findall(r'[a-z0-9]+', name.lower()))}.md"
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

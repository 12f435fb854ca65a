#!/usr/bin/env python3
"""The host's time of a cached eager call of fovea.torch.flex_attention: what a call costs before and beside the attention.

Every row is the same small problem, so that the device never holds the host up. Columns: a forward call, a forward call
that a backward will follow, and the backward; then of the forward what the library itself takes (the plan run with the
same arguments, everything looked up already), and what is left for Python: tracing, looking up, allocating.

  python bench/torch_host.py                    CPU tensors
  python bench/torch_host.py --device cuda      the bar is 60 us forward
  python bench/torch_host.py --only alibi --profile
"""

import argparse
import cProfile
import pstats
import statistics
import sys
import time

import torch

import fovea
from fovea.torch import create_block_mask, flex_attention, runtime

BAR = 60.0  # us forward on a GPU
CALLS, ROUNDS = 100, 40


def parse_arguments():
    head, _, tail = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=head, epilog=tail, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--profile", action="store_true", help="cProfile of the forward calls")
    return parser.parse_args()


def rows(heads, length, device, dtype):
    """name -> (score_mod, mask_mod): those of the table beside compiled flex_attention."""
    table = torch.randn(heads, length, length, device=device, dtype=dtype)
    doc = (torch.arange(length, device=device) // 4).to(torch.int32)
    softcap = lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0)
    causal = lambda b, h, q, k: q >= k
    return {
        "none": (None, None),
        "causal": (None, causal),
        "softcap": (softcap, None),
        "alibi": ((lambda s, b, h, q, k: s + torch.exp2(-8.0 * (h + 1) / heads) * (k - q)), None),
        "bias": ((lambda s, b, h, q, k: s + table[h, q, k]), None),
        "sliding": (None, lambda b, h, q, k: (q >= k) & (q - k < 1024)),
        "documents": (None, lambda b, h, q, k: doc[q] == doc[k]),
        "softcap, causal": (softcap, causal),
    }


def microseconds(function, device):
    """The best round: what else the machine does is not counted. A round is short enough for a GPU's queue."""
    calls = CALLS if device.type == "cpu" else 20
    times = []
    for _ in range(ROUNDS * CALLS // calls):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return min(times) * 1e6


def plan_alone(call):
    """The last run of a plan within call(), as a function to time: its tensors are held."""
    seen, held, inner = [], [], runtime.forward

    def watched(*arguments):
        held.append((arguments, inner(*arguments)))
        return held[-1][1]

    with runtime.watching(seen.append):
        held.append(call())
    run, arguments = seen[-1]
    return lambda: run(*arguments), held


def measure(score_mod, mask_mod, shape, device, dtype):
    q, k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
    block = mask_mod and create_block_mask(mask_mod, None, None, shape[2], shape[2])
    forward = lambda: flex_attention(q, k, v, score_mod, block)
    forward()
    inputs = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    training = lambda: flex_attention(*inputs, score_mod, block)
    o = training()
    grad = torch.randn_like(o)
    backward = lambda: torch.autograd.grad(o, inputs, grad, retain_graph=True)
    backward()
    return forward, [microseconds(x, device) for x in (forward, training, backward)]


def main():
    arguments = parse_arguments()
    device = torch.device(arguments.device)
    cpu = device.type == "cpu"
    shape, dtype = ((1, 1, 8, 8), torch.float32) if cpu else ((1, 16, 128, 128), torch.bfloat16)
    torch.set_num_threads(1)
    every = rows(shape[1], shape[2], device, dtype)
    wanted = [name.strip() for name in arguments.only.split(";") if name.strip()] or list(every)
    for name in wanted:
        forward, us = measure(*every[name], shape, device, dtype)
        print(f"{name:16}" + "".join(f"{x:8.1f}" for x in us), flush=True)
        if arguments.profile:
            profile = cProfile.Profile()
            profile.enable()
            for _ in range(3000):
                forward()
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()

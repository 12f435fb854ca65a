#!/usr/bin/env python3
"""The host's time of a cached eager call of fovea.torch.flex_attention: what a call costs besides the attention itself.

Every row is one small problem, so that the host never waits for the device. Columns, in microseconds: a forward call; its part
in the library (the plan run again with the same pointers); the rest, which is Python's (running the modifier on symbols,
finding the plan, allocating); a forward call that a backward will follow; the backward. The last row is a
torch.autograd.Function that computes nothing, which is torch's own share of the last two columns. The bars are 60 us forward
on a GPU, 25 us for a training forward and 45 us for its backward on a CPU.

  ./dev python bench/torch_host.py                    CPU tensors
  ./dev python bench/torch_host.py --device cuda
  ./dev python bench/torch_host.py --only "alibi; softcap, causal" --profile
"""

import argparse
import cProfile
import pstats
import sys
import time

import torch

import fovea
from fovea.torch import call_cache, create_block_mask, flex_attention, runtime

BARS = {"cuda": {"forward": 60.0}, "cpu": {"training": 25.0, "backward": 45.0}}  # us
CALLS, ROUNDS = 10, 1000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--only", default="", help="names of rows, separated by semicolons")
    parser.add_argument("--profile", action="store_true", help="profile the forward calls with cProfile")
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
    """The best round, which other work on the machine disturbed least. A round is short enough for a GPU's queue."""
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


def library_alone(forward, device):
    """What one such call passes to the library, as a function to time. All memory that it names is held."""
    call_cache.TABLE.clear()  # a call that is found there does not pass through launch()
    seen, launch = [], runtime.launch
    runtime.launch = lambda *arguments: seen.append(arguments) or launch(*arguments)
    try:
        held = forward()
    finally:
        runtime.launch = launch
    prepared, at, pointers, _, where = seen[-1]
    space = torch.empty(prepared.workspace, dtype=torch.uint8, device=device)
    workspace = (space.data_ptr(), prepared.workspace) if prepared.workspace else ()
    arguments = (tuple(pointers), where[0], where[1], workspace, at.call.scale, at.call.values)
    return lambda: (held, space) and prepared.caller.run(*arguments)


def calls_of(score_mod, mask_mod, shape, device, dtype):
    """(forward, the library alone, forward with gradients, backward), each run before."""
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
    return forward, library_alone(forward, device), training, backward


class Empty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        return q.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad, grad, grad


def empty_function(shape, device, dtype):
    """(forward with gradients, backward) of a function that computes nothing."""
    inputs = [torch.randn(shape, device=device, dtype=dtype).requires_grad_() for _ in range(3)]
    o = Empty.apply(*inputs)
    grad = torch.randn_like(o)
    return lambda: Empty.apply(*inputs), lambda: torch.autograd.grad(o, inputs, grad, retain_graph=True)


def profile(function):
    watch = cProfile.Profile()
    watch.enable()
    for _ in range(3000):
        function()
    watch.disable()
    pstats.Stats(watch).sort_stats("tottime").print_stats(25)


def main():
    arguments = parse_arguments()
    device = torch.device(arguments.device)
    cpu = device.type == "cpu"
    shape, dtype = ((1, 1, 8, 8), torch.float32) if cpu else ((1, 16, 128, 128), torch.bfloat16)
    torch.set_num_threads(1)
    every = rows(shape[1], shape[2], device, dtype)
    wanted = [name.strip() for name in arguments.only.split(";") if name.strip()] or list(every)
    unknown = [name for name in wanted if name not in every]
    if unknown:
        sys.exit(f"torch_host: no row '{unknown[0]}'; there are: {'; '.join(every)}")
    where = "a CPU" if cpu else torch.cuda.get_device_name(device)
    print(f"Fovea {fovea.__version__}, torch {torch.__version__}, {where}, {list(shape)} {dtype}; us, best rounds")
    columns = ("forward", "library", "Python", "training", "backward")
    print(" " * 16 + "".join(f"{name:>9}" for name in columns))
    over = []
    for name in wanted:
        calls = calls_of(*every[name], shape, device, dtype)
        forward, library, training, backward = (microseconds(call, device) for call in calls)
        numbers = dict(zip(columns, (forward, library, forward - library, training, backward)))
        print(f"{name:16}" + "".join(f"{x:9.1f}" for x in numbers.values()), flush=True)
        over += [f"{name}, {column}" for column, bar in BARS[device.type].items() if numbers[column] > bar]
        if arguments.profile:
            profile(calls[0])
    training, backward = (microseconds(call, device) for call in empty_function(shape, device, dtype))
    print(f"{'no computation':16}" + " " * 27 + f"{training:9.1f}{backward:9.1f}")
    if over:
        sys.exit(f"over the bars {BARS[device.type]} us: {'; '.join(over)}")


if __name__ == "__main__":
    main()

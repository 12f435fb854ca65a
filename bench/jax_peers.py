"""fovea.jax beside jax.nn's cuDNN attention and XLA, in one process, on the device that JAX has.

    ./dev python bench/jax_peers.py     writes docs/results/jax_<processor>.md or jax_gpu_<gpu>.md

Forward, backward alone (what jax.vjp gives, of what the forward saved) and both in one program. Milliseconds of one call, from
many that were enqueued one after the other; the sides take turns, and the median of the rounds counts. A case that a side
refuses is shown with its first reason, never left out.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import fovea
import fovea.jax

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import bench_report  # noqa: E402

CASES = ("none", "causal", "softcap", "alibi", "bias", "documents")


def data(shape, dtype):
    batch, length, heads, _ = shape
    keys = jax.random.split(jax.random.key(1), 5)
    q, k, v, grad = (jax.random.normal(key, shape, dtype) for key in keys[:4])
    extras = {
        "slopes": 2.0 ** (-8.0 * jnp.arange(1, heads + 1) / heads),
        "doc": jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32) // (length // 8), (batch, length)),
        "bias": jax.random.normal(keys[4], (1, heads, length, length), dtype),
    }
    return (q, k, v), grad, extras


def ours(case: str, extras, q, k, v):
    slopes, doc = extras["slopes"], extras["doc"]
    modifiers = {
        "none": {},
        "causal": {"mask_mod": lambda b, h, i, j: i >= j},
        "softcap": {"score_mod": lambda score, b, h, i, j: 30.0 * jnp.tanh(score / 30.0)},
        "alibi": {"score_mod": lambda score, b, h, i, j: score + slopes[h] * (j - i)},
        "bias": {"bias": extras["bias"]},
        "documents": {"mask_mod": lambda b, h, i, j: doc[b, i] == doc[b, j]},
    }
    return fovea.jax.attention(q, k, v, **modifiers[case])


def of_jax(implementation: str, case: str, extras, q, k, v):
    """jax.nn where it has the case: no modifiers, so the rest is written out for XLA alone."""
    if case in ("none", "causal", "bias"):
        bias = extras["bias"] if case == "bias" else None
        return jax.nn.dot_product_attention(q, k, v, bias, is_causal=case == "causal", implementation=implementation)
    if implementation == "cudnn":
        raise NotImplementedError("jax.nn has no such modifier")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / np.sqrt(q.shape[-1])
    place_q, place_k = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None, :]
    if case == "softcap":
        scores = 30.0 * jnp.tanh(scores / 30.0)
    elif case == "alibi":
        scores = scores + extras["slopes"][None, :, None, None] * (place_k - place_q)
    else:
        doc = extras["doc"]
        scores = jnp.where((doc[:, :, None] == doc[:, None, :])[:, None], scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)


def program(function, direction: str, tensors, grad, extras):
    """Compiled, as a function of nothing. Arrays are arguments: XLA would fold what it is given as constants."""
    forward = jax.jit(function)
    if direction == "forward":
        return functools.partial(forward, extras, *tensors)
    if direction == "backward":
        _, pull_back = jax.vjp(functools.partial(forward, extras), *tensors)
        return functools.partial(jax.jit(lambda pull_back, grad: pull_back(grad)), pull_back, grad)

    def loss(extras, grad, q, k, v):
        return jnp.sum(function(extras, q, k, v).astype(jnp.float32) * grad.astype(jnp.float32))

    return functools.partial(jax.jit(jax.grad(loss, argnums=(2, 3, 4))), extras, grad, *tensors)


def one_round(run, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        result = run()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls * 1e3


def calls_of(run) -> int:
    """So many as fill a tenth of a second, thirty at most; memory of their results is given back meanwhile."""
    jax.block_until_ready(run())
    return max(1, min(30, round(100 / one_round(run, 3))))


def measured(functions, direction: str, arguments, rounds: int) -> list[str]:
    """Milliseconds of each side, or why it refuses."""
    runs, refused = {}, {}
    for name, function in functions.items():
        try:
            run = program(function, direction, *arguments)
            runs[name] = run, calls_of(run)
        except (fovea.Error, NotImplementedError, ValueError, RuntimeError) as error:
            refused[name] = f"no: {str(error).splitlines()[0][:160]}"
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (run, calls) in runs.items():
            times[name].append(one_round(run, calls))
    return [refused.get(name) or f"{statistics.median(times[name]):.3f}" for name in functions]


def table(shape, dtype, sides, rounds: int) -> list[str]:
    arguments = data(shape, dtype)
    lines = [f"| case | direction | {' | '.join(sides)} |", "|---|---|" + "---|" * len(sides)]
    for case in CASES:
        functions = {name: functools.partial(side, case) for name, side in sides.items()}
        for direction in ("forward", "backward", "forward + backward"):
            lines.append(f"| {case} | {direction} | {' | '.join(measured(functions, direction, arguments, rounds))} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-record", action="store_true", help="print, write nothing")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shape", type=int, nargs=4, metavar=("B", "S", "H", "D"), help="1 1024 8 64 on a CPU, 4 4096 16 128 on a GPU")
    options = parser.parse_args()
    device, load, start = jax.devices()[0], os.getloadavg()[0], time.perf_counter()
    cpu = device.platform == "cpu"
    shape = tuple(options.shape or ((1, 1024, 8, 64) if cpu else (4, 4096, 16, 128)))
    dtype = jnp.float32 if cpu else jnp.bfloat16
    sides = {"Fovea": ours, "XLA": functools.partial(of_jax, "xla")}
    if not cpu:
        sides["jax.nn, cudnn"] = functools.partial(of_jax, "cudnn")
    lines = table(shape, dtype, sides, options.rounds)
    name = f"{bench_report.processor()}, {os.cpu_count()} cores, load {load:.1f} before" if cpu else device.device_kind
    batch, length, heads, features = shape
    text = [
        f"# fovea.jax beside jax.nn on a {device.platform.upper()}",
        "",
        f"{name}; JAX {jax.__version__}, Fovea {fovea.__version__}, commit {bench_report.commit()}; {jnp.dtype(dtype).name}, "
        f"B={batch} H={heads} S={length} D={features}; milliseconds a call, medians of {options.rounds} rounds in turns. "
        f"Documents have {length // 8} tokens. Made by bench/jax_peers.py in {time.perf_counter() - start:.0f} s.",
        "",
        *lines,
        "",
    ]
    print("\n".join(text[:3]))
    if not options.no_record:
        gpu = bench_report.slug(device.device_kind.removeprefix("NVIDIA"))
        bench_report.record("jax" if cpu else "jax_gpu", "\n".join(text), None if cpu else gpu)


if __name__ == "__main__":
    main()

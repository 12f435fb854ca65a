"""fovea.jax against XLA's own attention on the CPU, in one process and one run.

    ./dev python bench/jax_cpu.py [--write docs/results/jax_cpu_NAME.md]

Forward, backward alone (what jax.vjp gives, of what the forward saved) and both in one program, compiled by
jax.jit; both sides take turns, so that a busy machine slows both alike. The median of the rounds is reported, and the ratio of medians.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import fovea
import fovea.jax


def attention_xla(case: str, extras, q, k, v):
    """The case with implementation="xla", or in plain jax.numpy where jax.nn has no such thing."""
    if case in ("none", "causal"):
        return jax.nn.dot_product_attention(q, k, v, is_causal=case == "causal", implementation="xla")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    place_q, place_k = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None, :]
    if case == "softcap":
        scores = 30.0 * jnp.tanh(scores / 30.0)
    elif case == "alibi":
        scores = scores + extras["slopes"][None, :, None, None] * (place_k - place_q)
    elif case == "documents":
        doc = extras["doc"]
        scores = jnp.where((doc[:, :, None] == doc[:, None, :])[:, None], scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


def attention_fovea(case: str, extras, q, k, v):
    slopes, doc = extras["slopes"], extras["doc"]
    modifiers = {
        "none": {},
        "causal": {"mask_mod": "causal"},
        "softcap": {"score_mod": lambda score, b, h, i, j: 30.0 * jnp.tanh(score / 30.0)},
        "alibi": {"score_mod": lambda score, b, h, i, j: score + slopes[h] * (j - i)},
        "documents": {"mask_mod": lambda b, h, i, j: doc[b, i] == doc[b, j]},
    }
    return fovea.jax.attention(q, k, v, **modifiers[case])


def programs(function, case: str, extras, tensors, grad):
    """Compiled: the forward, the backward, and the two in one. Each is a function of nothing."""

    def loss(q, k, v, grad):
        return jnp.sum(function(case, extras, q, k, v) * grad)

    forward = jax.jit(lambda q, k, v: function(case, extras, q, k, v))
    _, pull_back = jax.vjp(forward, *tensors)
    backward = jax.jit(lambda pull_back, grad: pull_back(grad))
    both = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    return {
        "forward": lambda: forward(*tensors),
        "backward": lambda: backward(pull_back, grad),
        "forward + backward": lambda: both(*tensors, grad),
    }


def measure(runs: dict, rounds: int) -> dict[str, float]:
    """Median milliseconds of each run, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(t) for name, t in times.items()}


def table(batch: int, heads: int, length: int, features: int, rounds: int) -> list[str]:
    keys = jax.random.split(jax.random.key(1), 5)
    q, k, v, grad = (jax.random.normal(key, (batch, length, heads, features)) for key in keys[:4])
    extras = {
        "slopes": 2.0 ** (-8.0 * jnp.arange(1, heads + 1) / heads),
        "doc": jnp.broadcast_to(jnp.arange(length) // 128, (batch, length)),
    }
    lines = ["| case | direction | XLA, ms | Fovea, ms | XLA / Fovea |", "|---|---|---|---|---|"]
    for case in ("none", "causal", "softcap", "alibi", "documents"):
        ours, theirs = (programs(f, case, extras, (q, k, v), grad) for f in (attention_fovea, attention_xla))
        for direction in ours:
            found = measure({"xla": theirs[direction], "fovea": ours[direction]}, rounds)
            ratio = found["xla"] / found["fovea"]
            lines.append(f"| {case} | {direction} | {found['xla']:.1f} | {found['fovea']:.1f} | {ratio:.1f} |")
            print(lines[-1], flush=True)
    return lines


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=pathlib.Path, help="a markdown file for the table")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shape", type=int, nargs=4, default=(1, 8, 1024, 64), metavar=("B", "H", "S", "D"))
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    lines = table(*options.shape, options.rounds)
    batch, heads, length, features = options.shape
    text = [
        "# fovea.jax against XLA on the CPU",
        "",
        f"{processor()}, {cores} cores; JAX {jax.__version__}, Fovea {fovea.__version__}; float32, B={batch} "
        f"H={heads} S={length} D={features}; median of {options.rounds} rounds, both sides in turns. XLA is "
        'jax.nn.dot_product_attention(implementation="xla") for none and causal, the same in jax.numpy for '
        f"the rest. The load was {load:.1f} when it began. "
        "Made by bench/jax_cpu.py.",
        "",
        *lines,
        "",
    ]
    if options.write:
        options.write.write_text("\n".join(text))


if __name__ == "__main__":
    main()

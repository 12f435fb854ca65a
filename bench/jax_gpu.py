"""fovea.jax beside jax.nn's cuDNN attention and XLA on a GPU, in one process and one run.

    ./dev python bench/jax_gpu.py     writes docs/results/jax_gpu_<gpu>.md

bfloat16; forward, and forward with backward; milliseconds of one call, from many that were enqueued one after
the other. A case that an engine refuses is shown with its first reason, never left out.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import re
import time

import jax
import jax.numpy as jnp
import numpy as np

import fovea
import fovea.jax

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ("none", "causal", "softcap", "alibi", "bias", "documents")


def data(batch: int, heads: int, length: int, features: int):
    keys = jax.random.split(jax.random.key(1), 5)
    q, k, v, grad = (jax.random.normal(key, (batch, length, heads, features), jnp.bfloat16) for key in keys[:4])
    extras = {
        "slopes": 2.0 ** (-8.0 * jnp.arange(1, heads + 1) / heads),
        "doc": jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32) // 512, (batch, length)),
        "bias": jax.random.normal(keys[4], (1, heads, length, length), jnp.bfloat16),
    }
    return (q, k, v), grad, extras


def ours(case: str, extras, q, k, v):
    slopes, doc, bias = extras["slopes"], extras["doc"], extras["bias"]
    modifiers = {
        "none": {},
        "causal": {"mask_mod": lambda b, h, i, j: i >= j},
        "softcap": {"score_mod": lambda score, b, h, i, j: 30.0 * jnp.tanh(score / 30.0)},
        "alibi": {"score_mod": lambda score, b, h, i, j: score + slopes[h] * (j - i)},
        "bias": {"bias": bias},
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


def milliseconds(function, arguments, rounds: int) -> float:
    jax.block_until_ready(function(*arguments))
    start = time.perf_counter()
    jax.block_until_ready([function(*arguments) for _ in range(3)])
    # Three calls say how many fill a tenth of a second; memory of their results is given back meanwhile.
    count = max(3, min(rounds, int(0.1 / max((time.perf_counter() - start) / 3, 1e-6))))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(count):
            result = function(*arguments)
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - start) / count)
    return best * 1e3


def measured(function, arguments, direction: str, rounds: int) -> str:
    """`function` takes (extras, q, k, v); arrays are arguments, since XLA would fold what it is given as
    constants.
    """
    extras, tensors, grad = arguments
    if direction == "forward":
        compiled, operands = jax.jit(function), (extras, *tensors)
    else:

        def loss(extras, grad, q, k, v):
            return jnp.sum(function(extras, q, k, v).astype(jnp.float32) * grad.astype(jnp.float32))

        compiled, operands = jax.jit(jax.grad(loss, argnums=(2, 3, 4))), (extras, grad, *tensors)
    try:
        return f"{milliseconds(compiled, operands, rounds):.3f}"
    except (fovea.Error, NotImplementedError, ValueError, RuntimeError) as error:
        return f"no: {str(error).splitlines()[0][:160]}"


def table(shape, rounds: int) -> list[str]:
    tensors, grad, extras = data(*shape)
    sides = {
        "Fovea": ours,
        "jax.nn, cudnn": functools.partial(of_jax, "cudnn"),
        "XLA": functools.partial(of_jax, "xla"),
    }
    lines = [f"| case | direction | {' | '.join(sides)} |", "|---|---|" + "---|" * len(sides)]
    for case in CASES:
        for direction in ("forward", "forward + backward"):
            cells = [
                measured(functools.partial(side, case), (extras, tensors, grad), direction, rounds)
                for side in sides.values()
            ]
            lines.append(f"| {case} | {direction} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-record", action="store_true", help="print, write nothing")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--shape", type=int, nargs=4, default=(4, 16, 4096, 128), metavar=("B", "H", "S", "D"))
    options = parser.parse_args()
    device = jax.devices()[0]
    start = time.perf_counter()
    lines = table(options.shape, options.rounds)
    batch, heads, length, features = options.shape
    text = [
        "# fovea.jax beside jax.nn on a GPU",
        "",
        f"{device.device_kind}; JAX {jax.__version__}, Fovea {fovea.__version__}; bfloat16, B={batch} "
        f"H={heads} S={length} D={features}; milliseconds a call, the best of three runs of up to "
        f"{options.rounds} calls. Documents have 512 tokens. "
        f"Made by bench/jax_gpu.py in {time.perf_counter() - start:.0f} s.",
        "",
        *lines,
        "",
    ]
    print("\n".join(text[:3]))
    if not options.no_record:
        name = "_".join(re.findall(r"[a-z0-9]+", device.device_kind.lower().removeprefix("nvidia")))
        (ROOT / "docs" / "results" / f"jax_gpu_{name}.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()

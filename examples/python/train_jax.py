"""Trains a small transformer whose attention learns a bias for each distance, in JAX.

    ./dev python examples/python/train_jax.py [--steps 120] [--flax]

The task is to repeat the token of `DELAY` places ago: all that attention needs to learn is how far to look,
which is what a learned relative bias says directly. Without --flax everything is plain JAX; with it the
attention is the Flax module fovea.jax.DotProductAttention.
"""

from __future__ import annotations

import argparse
import functools

import jax
import jax.numpy as jnp

import fovea.jax

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, DELAY = 16, 32, 32, 4, 2, 5


def attention(q, k, v, table, use_flax: bool):
    """Causal attention with table[h, distance] added to the scores; q, k, v are [B, S, H, D]."""

    def score_mod(score, b, h, i, j):
        return score + table[h, i - j + LENGTH - 1]

    if use_flax:
        module = fovea.jax.DotProductAttention(
            head_dim=q.shape[-1], num_attention_heads=HEADS, attn_mask_type="causal", score_mod=score_mod
        )
        return module.apply({}, q, k, v, deterministic=True)
    return fovea.jax.attention(q, k, v, score_mod=score_mod, mask_mod=lambda b, h, i, j: i >= j)


def layer(params, x, use_flax: bool):
    batch, length, width = x.shape
    heads = (normalized(x) @ params["qkv"]).reshape(batch, length, 3, HEADS, width // HEADS)
    mixed = attention(*jnp.moveaxis(heads, 2, 0), params["table"], use_flax)
    x = x + mixed.reshape(batch, length, width).astype(x.dtype) @ params["out"]
    return x + jax.nn.gelu(normalized(x) @ params["up"]) @ params["down"]


def normalized(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits(params, tokens, use_flax: bool):
    x = params["embedding"][tokens]
    for block in params["blocks"]:
        x = layer(block, x, use_flax)
    return normalized(x) @ params["embedding"].T


def loss(params, tokens, use_flax: bool):
    """Cross entropy of the token DELAY places ago, if there is one."""
    scores = jax.nn.log_softmax(logits(params, tokens, use_flax)[:, DELAY:])
    return -jnp.mean(jnp.take_along_axis(scores, tokens[:, :-DELAY, None], axis=-1))


def initial(key):
    def matrix(key, rows, columns):
        return jax.random.normal(key, (rows, columns)) / jnp.sqrt(rows)

    keys = jax.random.split(key, 1 + LAYERS)
    blocks = []
    for one in keys[1:]:
        a, b, c, d = jax.random.split(one, 4)
        blocks.append(
            {
                "qkv": matrix(a, WIDTH, 3 * WIDTH),
                "out": matrix(b, WIDTH, WIDTH),
                "up": matrix(c, WIDTH, 2 * WIDTH),
                "down": matrix(d, 2 * WIDTH, WIDTH),
                "table": jnp.zeros((HEADS, 2 * LENGTH - 1)),
            }
        )
    return {"embedding": matrix(keys[0], VOCABULARY, WIDTH), "blocks": blocks}


@functools.partial(jax.jit, static_argnums=(4,), donate_argnums=(0, 1))
def step(params, moments, tokens, count, use_flax: bool):
    """One step of Adam."""
    value, gradients = jax.value_and_grad(loss)(params, tokens, use_flax)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments[1], gradients)

    def updated(p, m, s):
        return p - 0.02 * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.99**count)) + 1e-8)

    return jax.tree.map(updated, params, first, second), (first, second), value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--flax", action="store_true", help="attention as a Flax module")
    options = parser.parse_args()
    params = initial(jax.random.key(0))
    moments = (jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))
    for i in range(1, options.steps + 1):
        tokens = jax.random.randint(jax.random.key(i), (16, LENGTH), 0, VOCABULARY)
        params, moments, value = step(params, moments, tokens, jnp.float32(i), options.flax)
        if i == 1 or i % 20 == 0:
            print(f"step {i:4d}  loss {value:.4f}", flush=True)
    tables = jnp.stack([block["table"] for block in params["blocks"]])
    heads = tables[:, :, LENGTH - 1 :].reshape(LAYERS * HEADS, LENGTH)
    favourite = int(jnp.argmax(jnp.max(heads, axis=0)))
    print(f"the largest bias is that of distance {favourite}; the task looks back {DELAY}")


if __name__ == "__main__":
    main()

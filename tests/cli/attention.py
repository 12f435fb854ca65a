"""Attention once more, in NumPy, written from the definition and from nothing else: forward, backward, Philox.

Scores are dense arrays per batch and head. What this does not know (formulas, layouts), its caller spells out.
"""
import numpy as np


def philox(seed, counter):
    """Philox 4x32-10 as published: four words for a key of 64 bits and a counter of four."""
    key = [seed & 0xFFFFFFFF, seed >> 32]
    c = list(counter)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ key[0], second & 0xFFFFFFFF, (first >> 32) ^ c[3] ^ key[1], first & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def dropout_factors(rate, seed, offset, row, queries, keys):
    """0 or 1 / (1 - rate) for each score; `row` is b * H + h."""
    threshold = int(float(np.float32(rate)) * 2.0**32)
    words = [[philox(seed, (k // 4, q, row, offset))[k % 4] for k in range(keys)] for q in range(queries)]
    return (np.array(words) >= threshold) / (1 - float(np.float32(rate)))


def forward(q, k, v, mod, keep, scale, sink=-np.inf, factors=1.0):
    """O, lse, and what the backward needs, of one head."""
    raw = scale * q @ k.T
    s = np.where(keep, mod(raw), -np.inf)
    top = np.maximum(s.max(axis=1, initial=-np.inf), sink)
    shift = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(np.exp(s - shift[:, None]).sum(axis=1) + np.exp(sink - shift))
    p = np.exp(s - np.where(np.isfinite(lse), lse, 0)[:, None])
    return (p * factors) @ v, lse, raw, p


def backward(q, k, v, slope, scale, results, do, dlse=0.0, factors=1.0):
    """dQ, dK, dV, and the gradient of the modified scores, of one head; slope(raw) is the mod's derivative."""
    o, _, raw, p = results
    dp = (do @ v.T) * factors
    ds = p * (dp - (do * o).sum(axis=1, keepdims=True) + np.reshape(dlse, (-1, 1)))
    draw = ds * slope(raw) * scale
    return draw @ k, draw.T @ q, (p * factors).T @ do, ds

"""The definition of attention in NumPy and double, with the whole matrix of scores: what the package is
compared with."""

import numpy as np


def positions(shape):
    return np.ogrid[tuple(slice(n) for n in shape)]


def attention(q, k, v, *, mod=None, mask=None, scale=None, sinks=None):
    """(o, lse) of [B, H, S, D]; mod(score, b, h, q, k) and mask(b, h, q, k) are functions of arrays."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    score = np.einsum("bhqd,bhkd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    at = positions(score.shape)
    if mod is not None:
        score = mod(score, *at)
    if mask is not None:
        score = np.where(np.broadcast_to(mask(*at), score.shape), score, -np.inf)
    return softmax_times(score, v, sinks)


def softmax_times(score, v, sinks=None):
    top = score.max(-1, keepdims=True, initial=-np.inf)
    sink = None if sinks is None else np.asarray(sinks, np.float64)[None, :, None, None]
    if sink is not None:
        top = np.maximum(top, sink)
    top = np.where(np.isfinite(top), top, 0.0)
    weight = np.exp(score - top)
    total = weight.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    probability = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    return np.einsum("bhqk,bhkd->bhqd", probability, v), lse


def relative_error(got, wanted):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    norm = np.linalg.norm(wanted)
    return np.linalg.norm(got - wanted) / norm if norm else np.linalg.norm(got)


def central_differences(function, array, indices, step=1e-4):
    """d function / d array at some flat indices, in double."""
    out = []
    flat = array.reshape(-1)
    for index in indices:
        kept = flat[index]
        flat[index] = kept + step
        above = function()
        flat[index] = kept - step
        below = function()
        flat[index] = kept
        out.append((above - below) / (2 * step))
    return np.array(out)

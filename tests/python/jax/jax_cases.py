"""The modifiers and masks that every test runs, with what they capture.

A modifier here is an ordinary function of scalars. Given arrays of positions in place of scalars, JAX itself
evaluates the very same function elementwise: that is the definition that tests compare with
(`jax_definition.py`).
`given` is what Fovea gets, if that is another form of the same thing: a text, a Program, a callback.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

B, H, HKV, S, D = 4, 4, 2, 32, 16


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    # captured arrays -> {"score_mod": function, "mask_mod": function}
    modifiers: Callable[[dict[str, Any]], dict[str, Any]]
    # name -> shape of a float array that gets a gradient
    learned: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    # name -> array that gets none
    fixed: Callable[[np.random.Generator], dict[str, np.ndarray]] = lambda rng: {}
    given: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    sink: bool = False
    lengths: tuple[int, ...] | None = None
    context: bool = True  # can be cut along the sequence as it is

    def arguments(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return (self.given or self.modifiers)(arrays)


def causal(b, h, q, k):
    return q >= k


def window(size):
    return lambda b, h, q, k: (q >= k) & (q - k < size)


def all_masks(*masks):
    def mask(b, h, q, k):
        kept = True
        for one in masks:
            kept = kept & one(b, h, q, k)
        return kept

    return mask


CAP = 2.5


def softcap_of_a_global(score, b, h, q, k):
    return CAP * jnp.tanh(score / CAP)


@jax.jit
def half_tanh(x):
    return jnp.where(x > 0, 0.5 * x, jnp.tanh(x))


def gated(score, b, h, q, k, *, gain, shift=0.25):
    return gain * score * jax.nn.sigmoid(score + shift)


class Scaled:
    def __init__(self, weights, power):
        self.weights, self.power = weights, power

    def modify(self, score, b, h, q, k):
        return score * self.weights[h] ** self.power


class SoftcapGraph:
    """As Transformer Engine's users write it: nodes of a cuDNN graph."""

    def forward(self, graph, score, tensors):
        self.scaled = graph.div(a=score, b=tensors["softcap"])
        return graph.mul(a=graph.tanh(input=self.scaled), b=tensors["softcap"])

    def backward(self, graph, dscore, tensors):
        inner = graph.tanh_backward(loss=graph.mul(a=dscore, b=tensors["softcap"]), input=self.scaled)
        return graph.div(a=inner, b=tensors["softcap"])


def documents(rng):
    return {"doc": np.sort(rng.integers(0, 5, (B, S)), axis=1).astype(np.int32)}


def softcap(cap):
    return lambda score, b, h, q, k: cap * jnp.tanh(score / cap)


def cudnn_softcap(a):
    callbacks = SoftcapGraph()
    cap = jnp.reshape(a["cap"], (1, 1, 1, 1))
    return {
        "score_mod": callbacks.forward,
        "score_mod_bprop": callbacks.backward,
        "score_mod_tensors": {"softcap": cap},
        "score_mod_bprop_tensors": {"softcap": cap},
    }


def program_of(line):
    import fovea

    return fovea.Program(line)


CASES = [
    Case("none", lambda a: {}),
    Case("causal", lambda a: {"mask_mod": causal}),
    Case("causal text", lambda a: {"mask_mod": causal}, given=lambda a: {"mask_mod": "causal"}),
    Case("softcap of a number", lambda a: {"score_mod": softcap(3.0)}),
    Case("softcap of a global", lambda a: {"score_mod": softcap_of_a_global}),
    Case("softcap learned", lambda a: {"score_mod": softcap(2 + a["cap"])}, {"cap": ()}),
    Case(
        "alibi learned",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + 0.1 * a["slopes"][h] * (k - q), "mask_mod": causal},
        {"slopes": (H,)},
    ),
    Case(
        "alibi stock",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + jnp.exp2(-8.0 * (h + 1) / H) * (k - q)},
        given=lambda a: {"score_mod": "alibi"},
    ),
    Case("window", lambda a: {"mask_mod": window(7)}),
    Case(
        "prefix text",
        lambda a: {"mask_mod": lambda b, h, q, k: (k < 5) | (q >= k)},
        given=lambda a: {"mask_mod": "prefix(5)"},
    ),
    Case("documents", lambda a: {"mask_mod": lambda b, h, q, k: a["doc"][b, q] == a["doc"][b, k]}, fixed=documents),
    Case(
        "documents, causal",
        lambda a: {"mask_mod": all_masks(causal, lambda b, h, q, k: a["doc"][b, q] == a["doc"][b, k])},
        fixed=documents,
    ),
    Case(
        "relative bias",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + a["table"][h, q - k + S]},
        {"table": (H, 2 * S)},
    ),
    Case(
        "full bias", lambda a: {"score_mod": lambda s, b, h, q, k: s + a["bias"][b, h, q, k]}, {"bias": (B, H, S, S)}
    ),
    Case(
        "an element of a row",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + a["rows"][h, k]},
        {"rows": (H, S)},
        given=lambda a: {"score_mod": lambda s, b, h, q, k: s + a["rows"][h][k]},
    ),
    Case("dilated", lambda a: {"mask_mod": lambda b, h, q, k: (q - k) % 3 == 0}),
    Case("block diagonal", lambda a: {"mask_mod": lambda b, h, q, k: q // 8 == k // 8}),
    Case("checkerboard", lambda a: {"mask_mod": lambda b, h, q, k: ((q ^ k) & 1 == 0) | (q == k)}),
    Case("windows by head", lambda a: {"mask_mod": lambda b, h, q, k: (q >= k) & (q - k < jnp.where(h < 2, 4, 16))}),
    Case(
        "heads that differ",
        lambda a: {"score_mod": lambda s, b, h, q, k: jnp.where(h % 2 == 0, 2 * jnp.tanh(s), s * a["gain"][h])},
        {"gain": (H,)},
    ),
    Case(
        "negative indices",
        lambda a: {"score_mod": lambda s, b, h, q, k: s * a["gain"][-1 - h] + a["gain"][-1]},
        {"gain": (H,)},
    ),
    Case(
        "take",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + a["t"][k, h]},
        {"t": (S, H)},
        given=lambda a: {"score_mod": lambda s, b, h, q, k: s + jnp.take(a["t"], k, axis=0)[h]},
    ),
    Case(
        "out of range is filled",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + a["t"].at[q - k].get(mode="fill", fill_value=0.0)},
        {"t": (8,)},
    ),
    Case(
        "low-rank bias",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + jnp.sum(a["left"][q] * a["right"][k], axis=-1)},
        {"left": (S, 3), "right": (S, 3)},
    ),
    Case("gelu", lambda a: {"score_mod": lambda s, b, h, q, k: jax.nn.gelu(s) + 0.1 * jax.nn.silu(s)}),
    Case("logarithm", lambda a: {"score_mod": lambda s, b, h, q, k: s - jnp.log1p(abs(q - k)) + jnp.exp(-(s**2))}),
    Case("clipped", lambda a: {"score_mod": lambda s, b, h, q, k: jnp.clip(s, -0.75, 0.75)}),
    Case(
        "gate", lambda a: {"score_mod": lambda s, b, h, q, k: s * jax.nn.sigmoid(a["gate"][b, h])}, {"gate": (B, H)}
    ),
    Case("distance", lambda a: {"score_mod": lambda s, b, h, q, k: s - 0.3 * jnp.sqrt(1.0 + (q - k) ** 2)}),
    Case(
        "select_n",
        lambda a: {"score_mod": lambda s, b, h, q, k: jax.lax.select_n(s > 0.5, s, 0.5 * s + jnp.zeros_like(s))},
    ),
    Case("nested jit", lambda a: {"score_mod": lambda s, b, h, q, k: half_tanh(s) + half_tanh(0.5 * s)}),
    Case("partial", lambda a: {"score_mod": functools.partial(gated, gain=1.5)}),
    Case("bound method", lambda a: {"score_mod": Scaled(0.5 + 0.5 * a["w"], 2).modify}, {"w": (H,)}),
    Case(
        "Program",
        lambda a: {"score_mod": softcap(1.5), "mask_mod": causal},
        given=lambda a: {"score_mod": program_of('mod="cap * tanh(score / cap)" mask=causal scalar=cap=1.5')},
    ),
    Case(
        "text that captures",
        lambda a: {"score_mod": lambda s, b, h, q, k: 0.5 * s + a["slopes"][h] * (q - k)},
        {"slopes": (H,)},
        given=lambda a: {
            "score_mod": "x * score + slopes[h] * (q - k)",
            "score_mod_tensors": {"x": 0.5, "slopes": a["slopes"]},
        },
    ),
    Case("cuDNN callback", lambda a: {"score_mod": softcap(a["cap"])}, {"cap": ()}, given=cudnn_softcap),
    Case(
        "bprop by hand",
        lambda a: {"score_mod": lambda s, b, h, q, k: s * s * 0.25},
        given=lambda a: {
            "score_mod": lambda s, b, h, q, k: s * s * 0.25,
            "score_mod_bprop": lambda g, s, b, h, q, k: g * 0.5 * s,
        },
    ),
    Case("-inf from score_mod", lambda a: {"score_mod": lambda s, b, h, q, k: jnp.where(q >= k, s, -jnp.inf)}),
    Case("sink, causal", lambda a: {"mask_mod": causal}, sink=True),
    Case("lengths", lambda a: {"mask_mod": causal}, lengths=(32, 20, 1, 0)),
    Case(
        "floor and remainder",
        lambda a: {"score_mod": lambda s, b, h, q, k: s + a["t"][(q - k) // 5 + 7] * ((k - q) % 4)},
        {"t": (16,)},
    ),
    Case(
        "mask captured as bool",
        lambda a: {"mask_mod": lambda b, h, q, k: a["kept"][q, k]},
        fixed=lambda rng: {"kept": rng.random((S, S)) < 0.6},
    ),
    Case(
        "small types",
        lambda a: {
            "score_mod": lambda s, b, h, q, k: (
                s + a["half"][k].astype(jnp.float32) * a["bytes"][q].astype(jnp.int32)
            )
        },
        fixed=lambda rng: {
            "half": rng.standard_normal(S).astype(np.float16),
            "bytes": rng.integers(0, 3, S).astype(np.uint8),
        },
    ),
    Case("rows with nothing kept", lambda a: {"mask_mod": lambda b, h, q, k: (q > 9) & (k < 20)}, context=True),
    Case("select", lambda a: {"mask_mod": lambda b, h, q, k: jax.lax.select(q > k, q - k < 9, q == k)}),
    Case(
        "cond",
        lambda a: {"score_mod": lambda s, b, h, q, k: jnp.where(q > k, s * a["gain"][h], jnp.tanh(s))},
        {"gain": (H,)},
        given=lambda a: {
            "score_mod": lambda s, b, h, q, k: jax.lax.cond(
                q > k, lambda x: x * a["gain"][h], lambda x: jnp.tanh(x), s
            )
        },
    ),
]

"""Modifiers and masks as people publish them, each as it would be written for torch's flex_attention.

A case makes its functions from the tensors that they capture, so that the same formula runs in float32 through Fovea
and in float64 through torch. Captured float tensors get gradients."""
import dataclasses
import functools
import math
from typing import Callable, Optional

import torch

from fovea.torch import and_masks, noop_mask, or_masks

CASES = []


@dataclasses.dataclass(frozen=True)
class Sizes:
    B: int = 2
    H: int = 4
    Hkv: int = 4
    S: int = 36  # positions of queries and of keys
    D: int = 16


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    captured: Callable                       # (Sizes) -> {name: tensor}
    mod: Optional[Callable] = None           # (captured, Sizes) -> score_mod
    mask: Optional[Callable] = None          # (captured, Sizes) -> mask_mod
    sizes: Sizes = Sizes()

    def __str__(self):
        return self.name


def case(name, mod=None, mask=None, captured=lambda n: {}, **sizes):
    CASES.append(Case(name, captured, mod, mask, Sizes(**sizes)))


def normal(*shape, scale=1.0):
    return torch.randn(*shape) * scale


def lengths_to_ids(lengths, total):
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return ids[:total].to(torch.int32)


# --- scores ---

case("none")
case("relative_position", lambda c, n: lambda s, b, h, q, k: s + (q - k) * 0.1)
case("alibi_slopes", lambda c, n: lambda s, b, h, q, k: s + c["slopes"][h] * (k - q),
     captured=lambda n: {"slopes": torch.rand(n.H)})
case("alibi_formula", lambda c, n: lambda s, b, h, q, k: s + torch.exp2(-8.0 * (h + 1) / n.H) * (k - q))
case("alibi_symmetric", lambda c, n: lambda s, b, h, q, k: s - c["slopes"][h] * (q - k).abs(),
     captured=lambda n: {"slopes": torch.rand(n.H)})
case("softcap", lambda c, n: lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0))
case("softcap_tensor", lambda c, n: lambda s, b, h, q, k: c["cap"] * torch.tanh(s / c["cap"]),
     captured=lambda n: {"cap": torch.tensor(3.0)})
case("softcap_then_causal", lambda c, n: lambda s, b, h, q, k: torch.where(q >= k, 5 * (s / 5).tanh(), -float("inf")))
case("temperature", lambda c, n: lambda s, b, h, q, k: s * c["t"].exp(), captured=lambda n: {"t": torch.tensor(0.3)})
case("temperature_per_head", lambda c, n: lambda s, b, h, q, k: s / torch.nn.functional.softplus(c["t"])[h],
     captured=lambda n: {"t": normal(n.H)})
case("bias_full", lambda c, n: lambda s, b, h, q, k: s + c["bias"][b, h, q, k],
     captured=lambda n: {"bias": normal(n.B, n.H, n.S, n.S)})
case("bias_per_head", lambda c, n: lambda s, b, h, q, k: s + c["bias"][h, q, k],
     captured=lambda n: {"bias": normal(n.H, n.S, n.S)})
case("bias_of_keys", lambda c, n: lambda s, b, h, q, k: s + c["bias"][b, 0, 0, k],
     captured=lambda n: {"bias": normal(n.B, 1, 1, n.S)})
case("chained_indices", lambda c, n: lambda s, b, h, q, k: s + 0.1 * c["steps"][b][h][q, k],
     captured=lambda n: {"steps": torch.randint(-9, 9, (n.B, n.H, n.S, n.S))})
case("bias_from_the_end", lambda c, n: lambda s, b, h, q, k: s + c["bias"][-1, q - k],  # negative where k > q
     captured=lambda n: {"bias": normal(2, n.S + 3)})


def t5_bucket(distance, buckets=16, furthest=32):
    """T5's relative buckets of both directions."""
    half = buckets // 2
    side = (distance > 0).to(torch.int32) * half
    distance = distance.abs()
    exact = half // 2
    far = exact + (torch.log(distance.clamp(min=1) / exact) / math.log(furthest / exact) * (half - exact)).to(torch.int32)
    return side + torch.where(distance < exact, distance, torch.minimum(far, torch.full_like(far, half - 1)))


case("t5_bias", lambda c, n: lambda s, b, h, q, k: s + c["table"][t5_bucket(k - q), h],
     captured=lambda n: {"table": normal(16, n.H)})


def swin_index(side):
    at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
    apart = (at[:, :, None] - at[:, None, :]) + side - 1
    return apart[0] * (2 * side - 1) + apart[1]


case("swin_bias", lambda c, n: lambda s, b, h, q, k: s + c["table"][c["index"][q, k], h],
     captured=lambda n: {"table": normal(11 * 11, n.H), "index": swin_index(6)})


def swin_computed(c, n):
    def mod(s, b, h, q, k):
        dy, dx = q // 6 - k // 6 + 5, q % 6 - k % 6 + 5
        return s + c["table"][dy * 11 + dx, h]
    return mod


case("swin_bias_computed", swin_computed, captured=lambda n: {"table": normal(11 * 11, n.H)})
case("distance_decay", lambda c, n: lambda s, b, h, q, k: s - c["g"][h] * torch.log1p((q - k).abs()),
     captured=lambda n: {"g": torch.rand(n.H)})
case("retention_decay", lambda c, n: lambda s, b, h, q, k: s * c["g"][h] ** (q - k).abs(),
     captured=lambda n: {"g": torch.rand(n.H) * 0.5 + 0.5})
case("gaussian_distance", lambda c, n: lambda s, b, h, q, k: s - (q - k) ** 2 / (2 * c["width"][h] ** 2),
     captured=lambda n: {"width": torch.rand(n.H) + 4})
case("stick_breaking_gate",
     lambda c, n: lambda s, b, h, q, k: torch.where(k <= q, s + torch.nn.functional.logsigmoid(c["gate"][b, h, k]),
                                                    float("-inf")),
     captured=lambda n: {"gate": normal(n.B, n.H, n.S)})
case("forget_gate", lambda c, n: lambda s, b, h, q, k: s + c["sums"][b, h, q] - c["sums"][b, h, k],
     lambda c, n: lambda b, h, q, k: q >= k,
     captured=lambda n: {"sums": torch.cumsum(-torch.rand(n.B, n.H, n.S) * 0.2, -1)})
case("gated_score", lambda c, n: lambda s, b, h, q, k: s * torch.sigmoid(c["gate"][b, q]),
     captured=lambda n: {"gate": normal(n.B, n.S)})
case("token_types", lambda c, n: lambda s, b, h, q, k: s + c["table"][c["types"][b, q], c["types"][b, k]],
     captured=lambda n: {"table": normal(3, 3), "types": torch.randint(3, (n.B, n.S))})
case("graphormer", lambda c, n: lambda s, b, h, q, k: s + c["spatial"][c["apart"][b, q, k], h],
     captured=lambda n: {"spatial": normal(7, n.H), "apart": torch.randint(7, (n.B, n.S, n.S), dtype=torch.int32)})
case("cosine_of_distance", lambda c, n: lambda s, b, h, q, k: s * torch.cos(c["f"][h] * (q - k)),
     captured=lambda n: {"f": torch.rand(n.H)})
case("sandwich",
     lambda c, n: lambda s, b, h, q, k: s + sum(torch.cos((q - k) / 10.0 ** (2 * i / 4)) for i in range(1, 3)) * 0.1)
case("kerple", lambda c, n: lambda s, b, h, q, k: s - c["r"][h, 0] * torch.log1p(c["r"][h, 1] * (q - k).abs()),
     captured=lambda n: {"r": torch.rand(n.H, 2)})


def fire(c, n):
    """A small network of the distance, unrolled."""
    def mod(s, b, h, q, k):
        x = torch.log1p((q - k).abs()) / math.log(n.S)
        return s + sum(torch.relu(c["w"][i] * x + c["a"][i]) * c["out"][h, i] for i in range(4))
    return mod


case("fire_network", fire, captured=lambda n: {"w": normal(4), "a": normal(4), "out": normal(n.H, 4)})
case("clipped", lambda c, n: lambda s, b, h, q, k: torch.clamp(s, -0.5, 0.75))
case("length_scaled", lambda c, n: lambda s, b, h, q, k: s * c["t"][h] * torch.log(q + 1.5),
     captured=lambda n: {"t": torch.rand(n.H)})
case("gelu_of_score", lambda c, n: lambda s, b, h, q, k: torch.nn.functional.gelu(s) + torch.nn.functional.silu(s) * 0.5)
case("score_ignored", lambda c, n: lambda s, b, h, q, k: c["bias"][h, q, k],
     captured=lambda n: {"bias": normal(n.H, n.S, n.S)})
case("half_bias", lambda c, n: lambda s, b, h, q, k: s + c["bias"][h, k].to(s.dtype),
     captured=lambda n: {"bias": normal(n.H, n.S).bfloat16()})


def nested(c, n):
    def mod(s, b, h, q, k):
        near = torch.logical_and(q - k < 4, torch.logical_not(k > q))
        odd = torch.logical_xor(q % 2 == 1, k % 2 == 1)
        return torch.where(near, s * 2, torch.where(odd | (h == 1), s + 0.5, torch.where(k > q, s - 1, -s)))
    return mod


case("nested_where", nested)


def integers(c, n):
    """torch's rounding of integer division, of both signs."""
    def mod(s, b, h, q, k):
        d = q - k
        whole = d // 3 + d % 3 * 2 + torch.div(d, -4, rounding_mode="trunc") + torch.div(d, 5, rounding_mode="floor")
        rest = torch.fmod(d, 3) - torch.remainder(d, -3) + (d // -2) + (d % -4)
        return s + 0.05 * whole + 0.02 * rest
    return mod


case("integer_division", integers)
case("bit_patterns",
     lambda c, n: lambda s, b, h, q, k: s + 0.1 * ((q ^ k) & 3) + 0.05 * ((q | 4) >> 1) - 0.01 * ((~k) << 2) + (1 << h) * 0.1)


def floats(c, n):
    """Remainders and rounding of floats, and what else torch calls pointwise."""
    def mod(s, b, h, q, k):
        x = (q - k) * 0.7 + 0.23  # never where something jumps
        y = x // 1.5 + torch.floor(x) + torch.trunc(x) + torch.round(x) - torch.ceil(x) + x.frac() + torch.fmod(x, 1.1) + x % 1.3
        z = torch.maximum(s, -s * 0.5) + torch.minimum(s, torch.zeros_like(s)) + torch.sign(x) * s.square() * 0.1
        return z + 0.05 * y + torch.hypot(s, s.new_full((), 2.0)) + torch.lerp(s, x.to(s.dtype), 0.25) + torch.erf(s)
    return mod


case("float_rounding", floats)


class LearnedBias(torch.nn.Module):
    """A modifier that is a bound method of a module."""

    def __init__(self, table, slope):
        super().__init__()
        self.table, self.slope = table, slope

    def score_mod(self, score, b, h, q_idx, kv_idx):
        return score + self.table[h, (q_idx - kv_idx).clamp(0, 7)] * self.slope


case("bound_method", lambda c, n: LearnedBias(c["table"], c["slope"]).score_mod,
     captured=lambda n: {"table": normal(n.H, 8), "slope": torch.tensor(0.7)})


def windowed_bias(bias, width, score, b, h, q_idx, kv_idx, *, scale=1.0):
    return torch.where((q_idx - kv_idx).abs() < width, score + bias[h] * scale, score)


case("partial", lambda c, n: functools.partial(windowed_bias, c["bias"], 9, scale=0.5),
     captured=lambda n: {"bias": normal(n.H)})
case("grouped_heads", lambda c, n: lambda s, b, h, q, k: s + c["slopes"][h] * (k - q),
     lambda c, n: lambda b, h, q, k: (q >= k) | (h == 3), captured=lambda n: {"slopes": torch.rand(n.H)}, H=6, Hkv=2)

# --- masks ---

case("noop_mask", mask=lambda c, n: noop_mask)
case("causal", mask=lambda c, n: lambda b, h, q, k: q >= k)
case("sliding_window", mask=lambda c, n: lambda b, h, q, k: (q >= k) & (q - k < 8))
case("sliding_both_sides", mask=lambda c, n: lambda b, h, q, k: (q - k).abs() <= 5)
case("prefix_lm", mask=lambda c, n: or_masks(lambda b, h, q, k: k < 10, lambda b, h, q, k: q >= k))
case("prefix_per_sequence", mask=lambda c, n: lambda b, h, q, k: (k < c["prefix"][b]) | (q >= k),
     captured=lambda n: {"prefix": torch.tensor([3, 17])})
case("padding", mask=lambda c, n: lambda b, h, q, k: k < c["lengths"][b],
     captured=lambda n: {"lengths": torch.tensor([20, 36], dtype=torch.int32)})
case("documents", mask=lambda c, n: lambda b, h, q, k: c["doc"][b, q] == c["doc"][b, k],
     captured=lambda n: {"doc": torch.stack([lengths_to_ids([9, 4, 23], n.S), lengths_to_ids([1, 30, 5], n.S)])})
case("jagged_documents",
     mask=lambda c, n: and_masks(lambda b, h, q, k: c["doc"][q] == c["doc"][k],
                                 lambda b, h, q, k: q - c["start"][c["doc"][q]] >= k - c["start"][c["doc"][k]]),
     captured=lambda n: {"doc": lengths_to_ids([5, 13, 18], n.S), "start": torch.tensor([0, 5, 18])})


def natten(c, n):
    def at(i):
        return i // 6, i % 6

    def mask(b, h, q, k):
        (qy, qx), (ky, kx) = at(q), at(k)
        return ((qy.clamp(1, 4) - ky).abs() <= 1) & ((qx.clamp(1, 4) - kx).abs() <= 1)
    return mask


case("natten", mask=natten)
case("dilated", mask=lambda c, n: lambda b, h, q, k: ((q - k).abs() <= 12) & ((q - k).abs() % 3 == 0))
case("strided_sparse", mask=lambda c, n: lambda b, h, q, k: (q >= k) & ((q - k < 6) | ((k + 1) % 6 == 0)))
case("longformer", mask=lambda c, n: lambda b, h, q, k: ((q - k).abs() <= 3) | c["seen"][q] | c["seen"][k],
     captured=lambda n: {"seen": torch.arange(n.S) % 11 == 0})
case("bigbird_blocks", mask=lambda c, n: lambda b, h, q, k: c["blocks"][h, q // 6, k // 6],
     captured=lambda n: {"blocks": torch.rand(n.H, 6, 6) < 0.6})


def tree(n):
    parents = [0] + [i // 2 for i in range(1, 16)]
    seen = torch.eye(16, dtype=torch.bool)
    for node in range(1, 16):
        seen[node] |= seen[parents[node]]
    return {"ancestors": seen}


case("speculative_tree",
     mask=lambda c, n: lambda b, h, q, k: torch.where((q >= 20) & (k >= 20),
                                                      c["ancestors"][(q - 20).clamp(0, 15), (k - 20).clamp(0, 15)],
                                                      (q >= k) | (k < 0)), captured=tree)


def block_diffusion(c, n):
    half, block = n.S // 2, 6

    def mask(b, h, q, k):
        noised_q, noised_k = q < half, k < half
        at_q, at_k = (q % half) // block, (k % half) // block
        same = (at_q == at_k) & (noised_q == noised_k)
        return same | ((at_q > at_k) & noised_q & ~noised_k) | ((at_q >= at_k) & ~noised_q & ~noised_k)
    return mask


case("block_diffusion", mask=block_diffusion)


def cross_images(c, n):
    def mask(b, h, q, k):
        interval = c["intervals"][c["image"][k]]
        return (q >= interval[0]) & (q < interval[1])
    return mask


case("image_intervals", mask=cross_images,
     captured=lambda n: {"intervals": torch.tensor([[0, 12], [4, 36], [20, 36]]), "image": torch.arange(n.S) // 12})


def transfusion(c, n):
    def mask(b, h, q, k):
        kept = q >= k
        for first, length in c["spans"][b]:
            kept = kept | ((q >= first) & (q < first + length) & (k >= first) & (k < first + length))
        return kept
    return mask


case("transfusion_spans", mask=transfusion, captured=lambda n: {"spans": torch.tensor([[[2, 5], [20, 9]], [[0, 3], [8, 16]]])})
case("window_per_head", mask=lambda c, n: lambda b, h, q, k: (q >= k) & (q - k < c["window"][h]),
     captured=lambda n: {"window": torch.tensor([2, 5, 11, 40])})
case("mask_of_bools", mask=lambda c, n: lambda b, h, q, k: c["keep"][b, h, q, k],
     captured=lambda n: {"keep": torch.rand(n.B, n.H, n.S, n.S) < 0.4})
case("empty_rows", mask=lambda c, n: lambda b, h, q, k: (k > q + 2) & (q != 7))
case("causal_and_padding", mask=lambda c, n: and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: k < c["n"][b]),
     captured=lambda n: {"n": torch.tensor([10, 30])})
case("softcap_sliding", lambda c, n: lambda s, b, h, q, k: 4 * torch.tanh(s / 4),
     lambda c, n: lambda b, h, q, k: (q >= k) & (q - k <= 7))
case("alibi_causal", lambda c, n: lambda s, b, h, q, k: s + torch.exp2(-2.0 * (h + 1)) * (k - q),
     lambda c, n: lambda b, h, q, k: q >= k)

"""Transformer Engine's biases as modifiers: a tensor that is added before or after the scale, and ALiBi."""

import math

import torch
from torch import Tensor

from .._core import InvalidArgument
from .._request import one_of
from ..recorder import is_function
from .modifiers import Biased
from .transformer_engine import check_extents, element


def with_bias(options, bias, score_mod, bprop):
    """Options of attention() whose score_mod sees the biased score; without one, its score_mod is the bias alone."""
    function, text, tensor = bias
    if function is None or bprop is not None or not (score_mod is None or is_function(score_mod)):
        return {**options, "score_mod": Biased(text, tensor, score_mod)}
    if score_mod is None:
        return {**options, "score_mod": function}
    return {**options, "score_mod": lambda s, b, h, q, k: score_mod(function(s, b, h, q, k), b, h, q, k)}


def bias_of(module, kind, bias, slopes, aligned, q, sizes):
    """(function, formula of `score` and `_bias`, that tensor), or None. ALiBi has no function: it counts from the end of
    sequences, whose lengths only a formula knows."""
    one_of("core_attention_bias_type", kind, ("no_bias", "pre_scale_bias", "post_scale_bias", "alibi"))
    if slopes is not None and kind != "alibi":
        raise InvalidArgument(f"alibi_slopes: given, but core_attention_bias_type is {kind!r}")
    if bias is not None and kind in ("no_bias", "alibi"):
        raise InvalidArgument(f"core_attention_bias: given, but core_attention_bias_type is {kind!r}")
    if kind == "no_bias":
        return None
    if kind == "alibi":
        return alibi(module, slopes, aligned, q, sizes)
    if bias is None:
        raise InvalidArgument(f"core_attention_bias: {kind} needs a tensor [B or 1, H or 1, Sq or 1, Skv or 1]")
    check_extents("core_attention_bias", bias, sizes)
    indices = ", ".join(letter if extent > 1 else "0" for letter, extent in zip("bhqk", bias.shape))
    if kind == "post_scale_bias":
        return lambda s, b, h, q, k: s + element(bias, b, h, q, k), f"score + _bias[{indices}]", bias
    scale = module.softmax_scale
    text = f"score + _bias[{indices}] * ({float(scale)!r})"
    return lambda s, b, h, q, k: s + element(bias, b, h, q, k) * scale, text, bias


def alibi(module, slopes, aligned, q, sizes):
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    if slopes is None:
        slopes = own_slopes(module.region, module.num_attention_heads, q.device, exact)
    elif tuple(slopes.shape) != (sizes[1],) and tuple(slopes.shape) != (sizes[0], sizes[1]):
        raise InvalidArgument(f"alibi_slopes: {list(slopes.shape)}; must be [{sizes[1]}], or [{sizes[0]}, {sizes[1]}]")
    load = "_bias[b, h]" if slopes.dim() == 2 else "_bias[h]"
    at = "q + (Skv - Sq)" if aligned else "q"
    return None, f"score - {load} * abs({at} - k)", slopes.to(exact)


def own_slopes(region, heads, device, dtype=torch.float32):
    """The slopes of this rank's heads."""
    region.check()
    first = 0 if region.size == 1 else torch.distributed.get_rank(region.group) * heads
    return default_slopes(heads * region.size, device, dtype)[first : first + heads]


def default_slopes(heads: int, device, dtype=torch.float32) -> Tensor:
    """ALiBi's own: powers of 2^(-8/n), and for other numbers of heads those of the next power of two in between."""
    n = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / n) for i in range(heads - n)]
    return torch.tensor(slopes, device=device, dtype=dtype)

"""DotProductAttention as a Flax module, with Transformer Engine's arguments. Needs flax; nothing else here does."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from .._core import InvalidArgument
from .._request import module_window, one_of, window_mask
from ._attention import attention
from ._context import context_attention
from ._inputs import SequenceDescriptor
from ._modifiers import Modifier

_CAUSAL = ("causal", "padding_causal", "causal_padding")
_BOTTOM_RIGHT = (
    "causal_bottom_right",
    "bottom_right_causal",
    "padding_causal_bottom_right",
    "causal_padding_bottom_right",
    "bottom_right_causal_padding",
    "bottom_right_padding_causal",
)
_MASKS = ("no_mask", "padding", *_CAUSAL, *_BOTTOM_RIGHT)
_BIASES = (None, "no_bias", "pre_scale_bias", "post_scale_bias")
_SOFTMAX = ("vanilla", "off_by_one", "learnable")
# Transformer Engine's layouts, whose thd forms are [B, S, ...] with segments in the sequence descriptor.
_LAYOUTS = {
    "bshd_bshd_bshd": ("bshd", "sbhd"),
    "bs3hd": ("bs3hd", "sb3hd"),
    "bshd_bs2hd": ("bshd_bs2hd", "sbhd_sb2hd"),
    "thd_thd_thd": ("bshd", "sbhd"),
    "t3hd": ("bs3hd", "sb3hd"),
    "thd_t2hd": ("bshd_bs2hd", "sbhd_sb2hd"),
}
_STRATEGIES = {"default": "ring", "ring": "ring", "all_gather": "all_gather", "allgather": "all_gather"}


class DotProductAttention(nn.Module):
    """Attention with Transformer Engine's arguments and the modifiers of `fovea.jax.attention`.

    The output has the type of the inputs, which must agree; `dtype` is deprecated there, and must be that type.
    Differences: scores are always accumulated in float32, so `float32_logits` has no effect; any number of segments is
    allowed, so `max_segments_per_seq` has no effect; lengths and segments come in `sequence_descriptor` for every layout;
    inside jax.shard_map, `context_parallel_axis` names the mesh axis that the sequence is sharded along, with the strategy
    "default" (a ring), "ring" or "all_gather". A mask that Transformer Engine would ignore is refused. `dropout_rng` is that
    of `attention`."""

    head_dim: int
    num_attention_heads: int
    num_gqa_groups: int | None = None
    attention_dropout: float = 0.0
    attn_mask_type: str = "causal"
    attn_bias_type: str | None = None
    dtype: Any = None
    dropout_rng_name: str = "dropout"
    dropout_rng: str = "portable"
    float32_logits: bool = False
    qkv_layout: str = "bshd_bshd_bshd"
    scale_factor: float | None = None
    transpose_batch_sequence: bool = False
    window_size: tuple[int, int] | None = None
    max_segments_per_seq: int | None = 1
    context_parallel_causal_load_balanced: bool = False
    context_parallel_axis: str = ""
    context_parallel_strategy: str = "DEFAULT"
    context_checkpoint_name: str = "context"
    softmax_type: str = "vanilla"
    score_mod: Modifier | None = None
    mask_mod: Modifier | None = None
    score_mod_bprop: Modifier | None = None
    engine: str | None = None

    @nn.compact
    def __call__(
        self,
        query: jax.Array,
        key: jax.Array | None = None,
        value: jax.Array | None = None,
        sequence_descriptor: SequenceDescriptor | jax.Array | None = None,
        bias: jax.Array | None = None,
        *,
        deterministic: bool = False,
        mask: SequenceDescriptor | jax.Array | None = None,
        score_mod_tensors: Mapping[str, Any] | None = None,
        score_mod_bprop_tensors: Mapping[str, Any] | None = None,
        mask_mod_tensors: Mapping[str, Any] | None = None,
    ) -> jax.Array:
        """sequence_descriptor (or `mask`, its older name) is a SequenceDescriptor, or an array [B|1, H|1, Sq|1, Skv|1] that
        is true for what is dropped, which needs one of the padding masks."""
        self._check(query, key, bias)
        descriptor, mask = self._sequences(sequence_descriptor, mask)
        arguments = {
            "score_mod": self.score_mod,
            "mask_mod": self.mask_mod,
            "score_mod_bprop": self.score_mod_bprop,
            "score_mod_tensors": score_mod_tensors,
            "score_mod_bprop_tensors": score_mod_bprop_tensors,
            "mask_mod_tensors": mask_mod_tensors,
            "scale": self.scale_factor,
            "sink": self._sink(),
            "engine": self.engine,
            "checkpoint_name": self.context_checkpoint_name,
            "builtin_masks": self._masks(),
            **self._dropout(deterministic),
        }
        tensors = (query, key, value)
        layout = _LAYOUTS[self.qkv_layout.lower()][bool(self.transpose_batch_sequence)]
        if self.context_parallel_axis:
            return self._over_devices(tensors, layout, arguments, descriptor, (mask, bias))
        return attention(
            *tensors,
            layout=layout,
            bias=self._bias(bias),
            dense_mask=None if mask is None else jnp.logical_not(mask.astype(bool)),
            sequence_descriptor=descriptor,
            **arguments,
        )

    def _check(self, query, key, bias) -> None:
        one_of("attn_mask_type", self.attn_mask_type, _MASKS)
        one_of("softmax_type", self.softmax_type, _SOFTMAX)
        one_of("qkv_layout", self.qkv_layout.lower(), _LAYOUTS)
        one_of("context_parallel_strategy", self.context_parallel_strategy.lower(), _STRATEGIES)
        self._check_bias(bias)
        self._check_heads(query, key)
        if self.dtype is None:
            return
        if jnp.dtype(self.dtype) != query.dtype:
            raise InvalidArgument(
                f"dtype={jnp.dtype(self.dtype).name}: must be {query.dtype}, as query is; the output has the type of the inputs"
            )
        warnings.warn("dtype is deprecated: the output has the type of the inputs", stacklevel=3)

    def _check_bias(self, bias) -> None:
        kind = self._bias_type()
        one_of("attn_bias_type", kind, _BIASES)
        if bias is not None and kind == "no_bias":
            raise InvalidArgument('bias: given, but attn_bias_type is "no_bias"')
        if bias is None and kind in ("pre_scale_bias", "post_scale_bias"):
            raise InvalidArgument(f"attn_bias_type={kind!r}: needs a bias, and none is given")

    def _check_heads(self, query, key) -> None:
        heads = self.num_attention_heads
        groups = self.num_gqa_groups or heads
        if heads % groups:
            raise InvalidArgument(f"num_attention_heads={heads}: must be a multiple of num_gqa_groups={groups}")
        for name, x, count in (("query", query, heads), ("key", key, groups)):
            if x is not None and x.shape[-2:] != (count, self.head_dim):
                raise InvalidArgument(
                    f"{name}: shape {list(x.shape)} must end in {[count, self.head_dim]}, heads and head_dim"
                )
        if groups != heads and self.qkv_layout.lower() in ("bs3hd", "t3hd"):
            raise InvalidArgument(
                f"num_gqa_groups={groups}: must be num_attention_heads={heads} for qkv_layout {self.qkv_layout}"
            )

    def _sequences(self, descriptor, mask):
        """The descriptor and the dense mask: at most one of them is there."""
        if descriptor is not None and mask is not None:
            raise InvalidArgument("mask, sequence_descriptor: both are given; mask is the older name of the other")
        given = mask if descriptor is None else descriptor
        has_padding = "padding" in self.attn_mask_type
        if given is None:
            if has_padding:
                raise InvalidArgument(
                    f"attn_mask_type={self.attn_mask_type!r}: needs a sequence_descriptor, and none is given"
                )
            return None, None
        if isinstance(given, SequenceDescriptor):
            return given, None
        if not has_padding:
            raise InvalidArgument(
                f"mask: given, but attn_mask_type={self.attn_mask_type!r} takes none; use a padding mask type, or mask_mod"
            )
        given = jnp.asarray(given)
        if not (given.dtype == jnp.bool_ or jnp.issubdtype(given.dtype, jnp.integer)):
            raise InvalidArgument(f"mask: {given.dtype}; must be bool, true for what is dropped")
        return None, given

    def _masks(self) -> tuple[str, ...]:
        is_causal = "bottom_right" if self.attn_mask_type in _BOTTOM_RIGHT else self.attn_mask_type in _CAUSAL
        mask = window_mask(is_causal, module_window(self.window_size, bool(is_causal)))
        return (mask,) if mask else ()

    def _bias_type(self) -> str | None:
        return None if self.attn_bias_type is None else self.attn_bias_type.lower()

    def _bias(self, bias):
        if bias is None or self._bias_type() != "pre_scale_bias":
            return bias
        return bias * (1 / np.sqrt(self.head_dim) if self.scale_factor is None else self.scale_factor)

    def _sink(self):
        if self.softmax_type == "vanilla":
            return None
        heads = self.num_attention_heads
        if self.softmax_type == "off_by_one":
            return jnp.zeros(heads, jnp.float32)
        # The shape that Transformer Engine's checkpoints have.
        offset = self.param("softmax_offset", nn.initializers.zeros, (1, heads, 1, 1), jnp.float32)
        return offset.reshape(heads)

    def _dropout(self, deterministic: bool) -> dict[str, Any]:
        if deterministic or not self.attention_dropout:
            return {}
        seed = self.make_rng(self.dropout_rng_name)
        return {"dropout_rate": self.attention_dropout, "dropout_seed": seed, "dropout_rng": self.dropout_rng}

    def _over_devices(self, tensors, layout: str, arguments, descriptor, dense) -> jax.Array:
        if layout not in ("bshd", "sbhd"):
            raise InvalidArgument(f"qkv_layout={self.qkv_layout!r}: context parallelism takes separate q, k, v")
        if any(x is not None for x in dense) or (descriptor is not None and descriptor.segment_ids is not None):
            raise InvalidArgument(
                "context_parallel_axis: masks, biases and segments must be given as mask_mod and score_mod, which see "
                "global positions"
            )
        q_lengths, kv_lengths = (None, None) if descriptor is None else descriptor.seqlens
        return context_attention(
            *tensors,
            axis_name=self.context_parallel_axis,
            strategy=_STRATEGIES[self.context_parallel_strategy.lower()],
            order="zigzag" if self.context_parallel_causal_load_balanced else "contiguous",
            layout=layout,
            q_lengths=q_lengths,
            kv_lengths=kv_lengths,
            **arguments,
        )

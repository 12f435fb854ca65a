"""MultiheadAttention with Transformer Engine's constructor and forward arguments: projections round
DotProductAttention. Parameters have the names and layouts that it has with fuse_qkv_params=True: qkv or query_layer and
key_value, proj, layernorm_*. Checkpoints load with those names, and with query_weight, key_weight and value_weight."""

from typing import TYPE_CHECKING, Callable, Dict, Optional, Tuple, Union

import torch
from torch import Tensor

from .._core import InvalidArgument
from .._options import Options, takes
from .._request import one_of
from .dot_product_attention import DotProductAttention
from .projections import LayerNormLinear, Linear, Region, head_norm
from .transformer_engine import apply_rotary, check_angles, of_tokens, refuse_others, with_joined_projections

if TYPE_CHECKING:
    from typing_extensions import Unpack


NOT_HERE = (
    "fuse_wgrad_accumulation",
    "ub_overlap_ag",
    "ub_overlap_rs",
    "ub_overlap_rs_dgrad",
    "ub_bulk_dgrad",
    "ub_bulk_wgrad",
)
# Arguments that the attention inside takes, too.
OF_THE_CORE = ("num_attention_heads", "num_gqa_groups", "attention_dropout", "qkv_format", "attn_mask_type", "window_size")
OF_THE_CORE += ("bottom_right_diagonal", "layer_number", "attention_type", "sequence_parallel", "tp_group", "softmax_type")
OF_THE_CORE += ("get_rng_state_tracker",)


class MultiheadAttention(torch.nn.Module):
    """Self or cross attention over hidden states in `qkv_format`. Transformer Engine's documentation has the arguments;
    forward also takes score_mod and its companions, as DotProductAttention does."""

    @takes(DotProductAttention.__init__)
    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        kv_channels: Optional[int] = None,
        attention_dropout: float = 0.1,
        layernorm_epsilon: float = 1e-5,
        init_method: Optional[Callable] = None,
        output_layer_init_method: Optional[Callable] = None,
        layer_number: Optional[int] = None,
        attn_mask_type: str = "causal",
        window_size: Optional[Tuple[int, int]] = None,
        bottom_right_diagonal: Optional[bool] = None,
        tp_group=None,
        tp_size: int = 1,
        num_gqa_groups: Optional[int] = None,
        fuse_wgrad_accumulation: bool = False,
        get_rng_state_tracker: Optional[Callable] = None,
        sequence_parallel: bool = False,
        params_dtype: Optional[torch.dtype] = None,
        return_bias: bool = False,
        return_layernorm_output: bool = False,
        input_layernorm: bool = False,
        attention_type: str = "self",
        set_parallel_mode: bool = False,
        fuse_qkv_params: bool = False,
        zero_centered_gamma: bool = False,
        qkv_weight_interleaved: bool = True,
        rotary_pos_interleaved: bool = False,
        ub_overlap_ag: bool = False,
        ub_overlap_rs: bool = False,
        ub_overlap_rs_dgrad: bool = False,
        ub_bulk_dgrad: bool = False,
        ub_bulk_wgrad: bool = False,
        bias: bool = True,
        normalization: str = "LayerNorm",
        device: Union[torch.device, str, None] = None,
        qkv_format: str = "sbhd",
        name: Optional[str] = None,
        qk_norm_type: Optional[str] = None,
        qk_norm_eps: float = 1e-6,
        qk_norm_before_rope: bool = False,
        seq_length: Optional[int] = None,
        micro_batch_size: Optional[int] = None,
        softmax_type: str = "vanilla",
        **options: "Unpack[Options]",
    ):
        given = locals()
        super().__init__()
        refuse_others("MultiheadAttention", **{name: given[name] for name in NOT_HERE})
        self.attention_type = one_of("attention_type", attention_type, ("self", "cross"))
        self.region = Region(tp_group, tp_size, sequence_parallel)
        if self.region.size > 1 and not set_parallel_mode:
            raise InvalidArgument(f"tp_size={self.region.size}: goes with set_parallel_mode=True")
        self.heads = self.region.part("num_attention_heads", num_attention_heads)
        self.groups = self.region.part("num_gqa_groups", num_gqa_groups or num_attention_heads)
        if kv_channels is None and hidden_size % num_attention_heads:
            raise InvalidArgument(f"hidden_size={hidden_size}: must be a multiple of the {num_attention_heads} heads")
        self.channels = kv_channels or hidden_size // num_attention_heads
        self.qkv_format, self.input_layernorm = qkv_format, input_layernorm
        self.interleaved = qkv_weight_interleaved and fuse_qkv_params  # as Transformer Engine does
        self.rotary_pos_interleaved = rotary_pos_interleaved
        self.return_bias, self.return_layernorm_output = return_bias, return_layernorm_output
        if return_layernorm_output and not input_layernorm:
            raise InvalidArgument("return_layernorm_output: needs input_layernorm=True")
        made = {
            "bias": bias,
            "device": device or ("cuda" if torch.cuda.is_available() else "cpu"),
            "dtype": params_dtype,
            "init_method": init_method,
            "region": self.region if set_parallel_mode else None,
        }
        norm = {"kind": normalization, "eps": layernorm_epsilon, "zero_centered": zero_centered_gamma}
        first = lambda width: (
            LayerNormLinear(hidden_size, width, norm, **made) if input_layernorm else Linear(hidden_size, width, **made)
        )
        q_width, kv_width = self.heads * self.channels, 2 * self.groups * self.channels
        if attention_type == "self":
            setattr(self, "layernorm_qkv" if input_layernorm else "qkv", first(q_width + kv_width))
        else:
            setattr(self, "layernorm_query" if input_layernorm else "query_layer", first(q_width))
            self.key_value = Linear(hidden_size, kv_width, **made)
        self.q_norm = head_norm(qk_norm_type, self.channels, qk_norm_eps, made)
        self.k_norm = head_norm(qk_norm_type, self.channels, qk_norm_eps, made)
        self.qk_norm_before_rope = qk_norm_before_rope
        core = {name: given[name] for name in OF_THE_CORE}
        self.core_attention = DotProductAttention(kv_channels=self.channels, tp_size=self.region.size, **core, **options)
        self.core_attention.to(made["device"])
        self.register_load_state_dict_pre_hook(with_joined_projections)
        self.proj = Linear(
            q_width, hidden_size, **{**made, "init_method": output_layer_init_method or init_method, "row": True}
        )

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask=None,
        encoder_output: Optional[Tensor] = None,
        attn_mask_type: Optional[str] = None,
        window_size: Optional[Tuple[int, int]] = None,
        bottom_right_diagonal: Optional[bool] = None,
        is_first_microbatch: Optional[bool] = None,
        checkpoint_core_attention: bool = False,
        inference_params=None,
        rotary_pos_emb=None,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: Optional[Tensor] = None,
        alibi_slopes: Optional[Tensor] = None,
        cu_seqlens_q: Optional[Tensor] = None,
        cu_seqlens_kv: Optional[Tensor] = None,
        cu_seqlens_q_padded: Optional[Tensor] = None,
        cu_seqlens_kv_padded: Optional[Tensor] = None,
        max_seqlen_q: Optional[int] = None,
        max_seqlen_kv: Optional[int] = None,
        fast_zero_fill: bool = True,
        pad_between_seqs: Optional[bool] = None,
        *,
        score_mod=None,
        score_mod_bprop=None,
        score_mod_tensors: Optional[Dict[str, Tensor]] = None,
        score_mod_bprop_tensors: Optional[Dict[str, Tensor]] = None,
    ):
        refuse_others("MultiheadAttention", inference_params=inference_params)
        q, k, v, normed = self.project(hidden_states, encoder_output)
        starts = (cu_seqlens_q, cu_seqlens_kv), (cu_seqlens_q_padded, cu_seqlens_kv_padded)
        q, k = self.positioned(q, k, rotary_pos_emb, starts)
        context = self.core_attention(
            q,
            k,
            v,
            attention_mask=attention_mask,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_kv,
            cu_seqlens_q_padded=cu_seqlens_q_padded,
            cu_seqlens_kv_padded=cu_seqlens_kv_padded,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_kv=max_seqlen_kv,
            attn_mask_type=attn_mask_type,
            window_size=window_size,
            bottom_right_diagonal=bottom_right_diagonal,
            checkpoint_core_attention=checkpoint_core_attention,
            core_attention_bias_type=core_attention_bias_type,
            core_attention_bias=core_attention_bias,
            alibi_slopes=alibi_slopes,
            pad_between_seqs=pad_between_seqs,
            score_mod=score_mod,
            score_mod_bprop=score_mod_bprop,
            score_mod_tensors=score_mod_tensors,
            score_mod_bprop_tensors=score_mod_bprop_tensors,
        )
        out = [self.proj(context, with_bias=not self.return_bias)]
        if self.return_bias:
            out.append(self.proj.bias)
        if self.return_layernorm_output:
            out.append(normed)
        return tuple(out) if len(out) > 1 else out[0]

    def set_tensor_parallel_group(self, tp_group):
        """Sets the group of tp_size ranks; called before the first forward."""
        self.region.set_group(tp_group)
        self.core_attention.set_tensor_parallel_group(tp_group)

    def set_context_parallel_group(self, cp_group, cp_global_ranks=None, cp_stream=None, cp_comm_type="p2p"):
        """See DotProductAttention."""
        self.core_attention.set_context_parallel_group(cp_group, cp_global_ranks, cp_stream, cp_comm_type)

    def project(self, hidden, encoder_output):
        """Queries, keys and values as views of what the projections give, and the normalised input."""
        source = hidden
        if self.attention_type == "self":
            if encoder_output is not None:
                raise InvalidArgument("encoder_output: goes with attention_type='cross'")
            mixed, normed = first_projection(self.layernorm_qkv if self.input_layernorm else self.qkv, source)
            per_group = self.heads // self.groups
            if self.interleaved:  # of each group: its queries, one key, one value
                mixed = mixed.view(*mixed.shape[:-1], self.groups, per_group + 2, self.channels)
                q, k, v = mixed.split([per_group, 1, 1], dim=-2)
                q = q.reshape(*q.shape[:-3], self.heads, self.channels)
                return q, k.squeeze(-2), v.squeeze(-2), normed
            mixed = mixed.view(*mixed.shape[:-1], self.heads + 2 * self.groups, self.channels)
            return *mixed.split([self.heads, self.groups, self.groups], dim=-2), normed
        if encoder_output is None:
            raise InvalidArgument("encoder_output: attention_type='cross' needs it")
        q, normed = first_projection(self.layernorm_query if self.input_layernorm else self.query_layer, source)
        mixed = self.key_value(encoder_output)
        shape = (self.groups, 2, self.channels) if self.interleaved else (2, self.groups, self.channels)
        k, v = mixed.view(*mixed.shape[:-1], *shape).unbind(-2 if self.interleaved else -3)
        return q.view(*q.shape[:-1], self.heads, self.channels), k, v, normed

    def positioned(self, q, k, rotary, starts):
        if self.qk_norm_before_rope:
            q, k = self.q_norm(q), self.k_norm(k)
        if rotary is not None:
            of_q, of_k = rotary if isinstance(rotary, tuple) and len(rotary) == 2 else (rotary, rotary)
            for angles in (of_q, of_k):
                check_angles(angles)
            of_sequences = [padded if padded is not None else own for own, padded in zip(*starts)]
            if self.qkv_format == "thd":
                of_q, of_k = (of_tokens(*given) for given in zip((of_q, of_k), (q, k), of_sequences))
            q = apply_rotary(q, of_q, self.qkv_format, self.rotary_pos_interleaved)
            k = apply_rotary(k, of_k, self.qkv_format, self.rotary_pos_interleaved)
        return (q, k) if self.qk_norm_before_rope else (self.q_norm(q), self.k_norm(k))


def first_projection(layer, x):
    return layer(x) if isinstance(layer, LayerNormLinear) else (layer(x), None)

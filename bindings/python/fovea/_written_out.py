"""Models of transformers whose layers contain the attention itself (BLOOM, MPT, Falcon): these layers look it up by its name,
as other models do. transformers uses these classes instead of its own (register_patch_mapping) when it makes a model by
from_pretrained or from_config; weights and names stay. A call whose mask is not a Wrapped one runs the model's own code."""

import weakref

from torch.nn.attention.flex_attention import BlockMask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon
from transformers.models.mpt import modeling_mpt
from transformers.monkey_patching import register_patch_mapping

NAME = "fovea"
_configs = weakref.WeakValueDictionary()  # by id: those of models that have a class of this file


class Opaque(BlockMask):
    """What transformers and its models pass on as it is, as they do torch's block masks. It has no tables."""

    def __init__(self, shape):
        self._shape = shape

    @property
    def shape(self):
        return self._shape

    def contiguous(self):
        return self

    def to(self, *args, **kwargs):
        return self

    def __repr__(self):
        return f"{type(self).__name__}(shape={self._shape})"


class Wrapped(Opaque):
    """A mask as attention takes it, or None, for models that would look into it."""

    ndim = 0  # Falcon looks into those of four dimensions

    def __init__(self, mask, shape):
        super().__init__(shape)
        self.mask = mask


def looks_attention_up(config) -> bool:
    return _configs.get(id(config)) is config


def attend(module, q, k, v, mask, **options):
    """[B, H, Sq, D] to [B, Sq, H * D]"""
    o, _ = ALL_ATTENTION_FUNCTIONS[NAME](module, q, k, v, mask.mask, **options)
    return o.flatten(2)


def by_keys(bias, heads):
    """[B * heads, 1, Skv] as it is added to scores"""
    return bias.view(-1, heads, 1, bias.shape[-1])


class Noted:
    """Notes the configuration of its model."""

    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        _configs[id(config)] = config


class BloomAttention(Noted, modeling_bloom.BloomAttention):
    def forward(self, hidden_states, residual, alibi, attention_mask, layer_past=None, output_attentions=False, **rest):
        if not isinstance(attention_mask, Wrapped) or (self.pretraining_tp > 1 and self.slow_but_exact):
            rest |= {"layer_past": layer_past, "output_attentions": output_attentions}
            return super().forward(hidden_states, residual, alibi, attention_mask, **rest)
        q, k, v = self._reshape(self.query_key_value(hidden_states))
        if layer_past is not None:
            k, v = layer_past.update(k, v, self.layer_idx)
        o = attend(
            self,
            *(q, k, v, attention_mask),
            dropout=self.attention_dropout.p if self.training else 0.0,
            scaling=self.inv_norm_factor,
            position_bias=self.beta * by_keys(alibi, self.num_heads),
            output_attentions=output_attentions,
        )
        return modeling_bloom.dropout_add(self.dense(o), residual, self.hidden_dropout, self.training), None


class MptAttention(Noted, modeling_mpt.MptAttention):
    def forward(self, hidden_states, position_bias, past_key_values=None, attention_mask=None, **rest):
        if not isinstance(attention_mask, Wrapped):
            return super().forward(hidden_states, position_bias, past_key_values, attention_mask, **rest)
        mixed = self.Wqkv(hidden_states)
        if self.clip_qkv:
            mixed = mixed.clamp(-self.clip_qkv, self.clip_qkv)
        q, k, v = mixed.unflatten(2, (3, self.n_heads, self.head_dim)).permute(2, 0, 3, 1, 4).unbind()
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        if position_bias is not None:  # [H, 1, at least as many as there are keys]: the last ones are meant
            position_bias = position_bias[None, :, :, max(0, position_bias.shape[2] - k.shape[2]) :]
        o = attend(
            self,
            *(q, k, v, attention_mask),
            dropout=self.attn_dropout_p if self.training else 0.0,
            scaling=self.softmax_scale,
            position_bias=position_bias,
        )
        return self.out_proj(o), None


class MptBlock(modeling_mpt.MptBlock):
    """Keeps whether probabilities are asked for: its attention is not told."""

    def forward(self, *args, attention_mask, output_attentions=False, **rest):
        if output_attentions and isinstance(attention_mask, Wrapped):
            ALL_ATTENTION_FUNCTIONS[NAME](self, *[None] * 4, output_attentions=True)  # raises, with the reason
        return super().forward(*args, attention_mask=attention_mask, output_attentions=output_attentions, **rest)


class FalconAttention(Noted, modeling_falcon.FalconAttention):
    """Its dropout is drawn beside ALiBi only, as in the model's own code."""

    def forward(self, hidden_states, alibi, attention_mask, layer_past=None, position_embeddings=None, **rest):
        if not isinstance(attention_mask, Wrapped):
            rest |= {"layer_past": layer_past, "position_embeddings": position_embeddings}
            return super().forward(hidden_states, alibi, attention_mask, **rest)
        q, k, v = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
        bias, dropout = None, 0.0
        if alibi is None:
            q, k = modeling_falcon.apply_rotary_pos_emb(q, k, *position_embeddings)
        else:
            bias = self.inv_norm_factor * by_keys(alibi, self.num_heads)
            dropout = self.attention_dropout.p if self.training else 0.0
        if layer_past is not None:
            k, v = layer_past.update(k, v, self.layer_idx)
        o = attend(
            self,
            *(q, k, v, attention_mask),
            dropout=dropout,
            scaling=self.inv_norm_factor,
            position_bias=bias,
            output_attentions=rest.get("output_attentions", False),
        )
        return self.dense(o), None


def register():
    register_patch_mapping({x.__name__: x for x in (BloomAttention, MptAttention, MptBlock)}, overwrite=True)
    # Falcon has a table of classes, by the name of the implementation.
    modeling_falcon.FALCON_ATTENTION_CLASSES[NAME] = FalconAttention

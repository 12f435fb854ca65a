"""Tiny models of transformers with random weights: a function each, and what a call of it is given."""

import math

import torch
import transformers as hf

SIZES = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SIZES, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
IMAGES = {**SIZES, "image_size": 16, "patch_size": 4}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "decoder_start_token_id": 1}
HALVES = {"encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
SEQUENCES = {**HALVES, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "d_model": 32, "vocab_size": 61, **TOKENS}
LOCAL = ["sliding_attention", "full_attention"]

# The class of the model, and its configuration. Windows and chunks are shorter than the test's sequences.
DECODERS = {
    "llama": ("LlamaForCausalLM", hf.LlamaConfig, GROUPED),
    "mistral": ("MistralForCausalLM", hf.MistralConfig, {**GROUPED, "sliding_window": 6}),
    "gemma2": (
        "Gemma2ForCausalLM",
        hf.Gemma2Config,
        {**GROUPED, "head_dim": 8, "sliding_window": 6, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        hf.Gemma3TextConfig,
        {**GROUPED, "head_dim": 8, "sliding_window": 6, "layer_types": LOCAL},
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        hf.GptOssConfig,
        {**GROUPED, **EXPERTS, "head_dim": 8, "sliding_window": 6, "layer_types": LOCAL},
    ),
    "qwen2": ("Qwen2ForCausalLM", hf.Qwen2Config, GROUPED),
    "qwen3": ("Qwen3ForCausalLM", hf.Qwen3Config, {**GROUPED, "head_dim": 8}),
    "llama4": (
        "Llama4ForCausalLM",
        hf.Llama4TextConfig,
        {
            **GROUPED,
            **EXPERTS,
            "intermediate_size_mlp": 40,
            "head_dim": 8,
            "attention_chunk_size": 6,
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        hf.DeepseekV3Config,
        {
            **GROUPED,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
        },
    ),
    "phi3": ("Phi3ForCausalLM", hf.Phi3Config, {**GROUPED, "sliding_window": 6}),
    "gpt2": (
        "GPT2LMHeadModel",
        hf.GPT2Config,
        {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **TOKENS},
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", hf.GPTNeoXConfig, {**SIZES, **TOKENS}),
    "cohere2": ("Cohere2ForCausalLM", hf.Cohere2Config, {**GROUPED, "sliding_window": 6, "layer_types": LOCAL}),
}

# Their attention is written out in the model.
WRITTEN_OUT = {
    "falcon": ("FalconForCausalLM", hf.FalconConfig, {**SIZES, **TOKENS, "alibi": False}),
    "falcon_alibi": ("FalconForCausalLM", hf.FalconConfig, {**SIZES, **TOKENS, "alibi": True}),
    "bloom": ("BloomForCausalLM", hf.BloomConfig, {"vocab_size": 61, "hidden_size": 32, "n_layer": 2, "n_head": 4, **TOKENS}),
    "mpt": (
        "MptForCausalLM",
        hf.MptConfig,
        {"vocab_size": 61, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, **TOKENS},
    ),
}

ENCODERS = {
    "bert": ("BertModel", hf.BertConfig, SIZES),
    "roberta": ("RobertaModel", hf.RobertaConfig, {**SIZES, "pad_token_id": 0}),
    "modernbert": ("ModernBertModel", hf.ModernBertConfig, {**SIZES, "local_attention": 6, "pad_token_id": 0, "layer_types": LOCAL}),
    "clip_text": ("CLIPTextModel", hf.CLIPTextConfig, {**SIZES, "eos_token_id": 60}),
}

VISION = {
    "vit": ("ViTModel", hf.ViTConfig, IMAGES),
    "dinov2": ("Dinov2Model", hf.Dinov2Config, IMAGES),
    "clip_vision": ("CLIPVisionModel", hf.CLIPVisionConfig, IMAGES),
    "swin": (
        "SwinModel",
        hf.SwinConfig,
        {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
}

SEQ2SEQ = {
    "t5": (
        "T5ForConditionalGeneration",
        hf.T5Config,
        {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4, **TOKENS},
    ),
    "bart": ("BartForConditionalGeneration", hf.BartConfig, {**SEQUENCES, "forced_eos_token_id": None}),
    "whisper": (
        "WhisperForConditionalGeneration",
        hf.WhisperConfig,
        {
            **SEQUENCES,
            "num_mel_bins": 8,
            "max_source_positions": 10,
            "max_target_positions": 64,
            "begin_suppress_tokens": None,
            "suppress_tokens": None,
        },
    ),
}

ALL = {**DECODERS, **WRITTEN_OUT, **ENCODERS, **VISION, **SEQ2SEQ}


def tiny(name, attn_implementation="eager"):
    """Weights are larger than models begin with, so that probabilities are far from even."""
    model_class, config_class, options = ALL[name]
    config = config_class(**options)
    model = getattr(hf, model_class)._from_config(config, attn_implementation=attn_implementation)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=2 / math.sqrt(parameter.shape[-1]))
            else:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def tokens(batch=2, length=13):
    return torch.randint(2, 61, (batch, length))


def padding(ids, left=0, right=0):
    """The first sequence is shorter."""
    mask = torch.ones_like(ids)
    mask[0, :left] = 0
    mask[0, ids.shape[1] - right :] = 0
    return mask


def inputs(name):
    """What a call is given, as keyword arguments."""
    if name in VISION:
        return {"pixel_values": torch.randn(2, 3, 16, 16)}
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 20), "decoder_input_ids": tokens()}
    ids = tokens()
    if name in SEQ2SEQ:
        return {"input_ids": ids, "attention_mask": padding(ids, right=4), "decoder_input_ids": tokens(length=9)}
    return {"input_ids": ids}

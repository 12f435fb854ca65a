"""Models of transformers with attn_implementation="fovea" compute what they compute with "eager": outputs, gradients of
all parameters, and generated tokens."""

import inspect
import os

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
transformers = pytest.importorskip("transformers", reason="fovea.transformers needs transformers")
masking_utils = pytest.importorskip("transformers.masking_utils")

import fovea.transformers
from fovea import InvalidArgument
from tiny_models import ALL, DECODERS, ENCODERS, SEQ2SEQ, WRITTEN_OUT, inputs, padding, tiny, tokens

STEPS = 10  # more than the windows of the models have keys left


@pytest.fixture
def calls(monkeypatch):
    """Counts what reaches fovea.torch.attention."""
    seen = []
    inner = fovea.transformers.attention

    def counting(*args, **options):
        seen.append(options)
        return inner(*args, **options)

    monkeypatch.setattr(fovea.transformers, "attention", counting)
    return seen


def output(model, given):
    out = model(**given)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def use(model, attn_implementation):
    """Models that have attention written out decline to change it, but look at their configuration."""
    model.set_attn_implementation(attn_implementation)
    model.config._attn_implementation = attn_implementation


def outputs_and_gradients(model, attn_implementation, given, live):
    """Of a loss that weighs every live position of the output differently."""
    use(model, attn_implementation)
    model.zero_grad()
    out = output(model, given)
    if live is not None:
        out = out[live]
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    (out * weights).sum().backward()
    return out.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def exact(name):
    """The implementation to compare with: Falcon's eager one adds ALiBi twice."""
    return "sdpa" if name == "falcon_alibi" else "eager"


def compare(model, given, live=None, with_whom="eager"):
    expected, of_eager = outputs_and_gradients(model, with_whom, given, live)
    got, gradients = outputs_and_gradients(model, "fovea", given, live)
    assert close(got, expected, 1e-5)
    assert of_eager.keys() == gradients.keys() and gradients
    # The bias of keys has no gradient but what rounding makes of sums over large ones.
    largest = max(float(gradient.abs().max()) for gradient in of_eager.values())
    for name, gradient in gradients.items():
        assert close(gradient, of_eager[name], 1e-4, 1e-6 * largest), f"the gradient of {name}"


@torch.no_grad()
def close(got, expected, relative, absolute=0.0):
    return float((got - expected).abs().max()) <= max(absolute, relative * float(expected.abs().max()))


@pytest.mark.parametrize("name", ALL)
def test_outputs_and_gradients_are_those_of_eager(name, calls):
    compare(tiny(name, "fovea"), inputs(name), with_whom=exact(name))
    assert calls


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_models_that_have_attention_written_out(name, calls):
    """They ask Fovea if they are made for it; if not, they keep their own code and say so."""
    model = tiny(name, "fovea")
    with pytest.raises(InvalidArgument, match="output_attentions.*eager"):
        model(**inputs(name), output_attentions=True)
    if name.startswith("falcon"):
        model = tiny(name, "eager")
    else:
        model = type(model)(model.config.from_dict(model.config.to_dict()))
    use(model, "fovea")
    with pytest.warns(UserWarning, match="Fovea has no part in it"):
        model(**inputs(name))
    assert not calls


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, *WRITTEN_OUT, *(x for x in ENCODERS if x != "clip_text")])
def test_padding(name, side):
    ids = tokens()
    mask = padding(ids, **{side: 5})
    compare(tiny(name, "fovea"), {"input_ids": ids, "attention_mask": mask}, mask.bool(), exact(name))


def generated(model, attn_implementation, cache, given):
    """The tokens, and the logits of every step."""
    use(model, attn_implementation)
    out = model.generate(
        **given,
        do_sample=False,
        max_new_tokens=STEPS,
        cache_implementation=cache,
        disable_compile=True,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return out.sequences, torch.stack(out.logits)


def static_chunked_masks_fail():
    """Why transformers' own generate() raises for this model, or "": 5.17 does, with any attention."""
    function = "create_chunked_causal_mask"
    given = inspect.signature(masking_utils.create_masks_for_generate).parameters
    taken = inspect.signature(getattr(masking_utils, function)).parameters
    missing = "block_sequence_ids"
    if missing not in given or missing in taken:
        return ""
    return f"transformers {transformers.__version__} passes {missing} to its own {function}, which does not take it"


@pytest.mark.parametrize("name", [*DECODERS, *WRITTEN_OUT, *SEQ2SEQ])
def test_generation_is_that_of_eager_token_by_token(name):
    model, given = tiny(name, "fovea"), inputs(name)
    given.pop("decoder_input_ids", None)
    if name not in SEQ2SEQ:
        given["attention_mask"] = padding(given["input_ids"], left=4)
    expected, logits = generated(model, exact(name), "dynamic", given)
    for cache in ("dynamic",) if name == "falcon_alibi" else ("dynamic", "static"):  # which has none with eager either
        if cache == "static" and name == "llama4" and static_chunked_masks_fail():
            pytest.skip("right with a dynamic cache; " + static_chunked_masks_fail())
        got, ours = generated(model, "fovea", cache, given)
        assert torch.equal(got, expected), f"with a {cache} cache"
        assert close(ours, logits, 1e-4), f"with a {cache} cache"


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_generation_builds_few_plans(name, cache):
    model, ids = tiny(name, "fovea"), tokens()
    fovea.cache_clear()
    before = fovea.cache_stats()["builds"]
    given = {"attention_mask": padding(ids, left=4), "cache_implementation": cache, "disable_compile": True}
    model.generate(ids, **given, do_sample=False, max_new_tokens=30)
    assert fovea.cache_stats()["builds"] - before <= 4


def test_heads_of_keys_are_not_repeated(monkeypatch):
    shapes = []
    inner = fovea.transformers.attention
    monkeypatch.setattr(
        fovea.transformers, "attention", lambda q, k, v, **rest: shapes.append((q.shape[1], k.shape[1])) or inner(q, k, v, **rest)
    )
    tiny("llama", "fovea")(input_ids=tokens())
    assert set(shapes) == {(4, 2)}


def test_a_mask_that_says_nothing_is_none(calls):
    ids = tokens()
    model = tiny("llama", "fovea")
    model(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert all(call["mask_mod"] is None and call["is_causal"] for call in calls)


def test_a_window_that_a_cache_keeps_needs_no_mask(calls):
    model = tiny("mistral", "fovea")
    model.generate(tokens(batch=1), do_sample=False, max_new_tokens=4)
    assert calls[0]["mask_mod"] is not None and calls[-1]["mask_mod"] is None


def test_compiled_without_a_break():
    ids, model = tokens(), tiny("gemma2", "fovea")
    given = {"input_ids": ids, "attention_mask": padding(ids, left=4), "use_cache": False}
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert close(compiled(**given).logits, model(**given).logits, 1e-6)


def test_what_a_model_asks_of_flash_attention(calls):
    """ModernBERT's configuration may ask for a backward whose sums have an order."""
    model = tiny("modernbert", "fovea")
    for layer in model.layers:
        layer.attn.deterministic_flash_attn = True
    model(**inputs("modernbert"))
    assert all(call["deterministic"] is True for call in calls) and calls


def test_packed_sequences():
    position_ids = torch.cat([torch.arange(5), torch.arange(8)])[None]
    compare(tiny("llama"), {"input_ids": tokens(batch=1), "position_ids": position_ids, "use_cache": False})


def test_a_mask_of_ones_own():
    ids = tokens()
    bias = 3 * torch.randn(2, 1, 13, 13)
    compare(tiny("llama"), {"input_ids": ids, "attention_mask": bias})
    keep = torch.rand(2, 1, 13, 13) < 0.6
    keep |= torch.eye(13, dtype=torch.bool)
    model = tiny("llama", "fovea")
    got = model(input_ids=ids, attention_mask=keep).logits
    model.set_attn_implementation("sdpa")
    assert close(got, model(input_ids=ids, attention_mask=keep).logits, 1e-5)


def test_several_tokens_behind_a_cache():
    """As assisted decoding has it: queries whose first position is not 0."""
    ids, model = tokens(length=20), tiny("gemma2")
    logits = {}
    for attn_implementation in ("eager", "fovea"):
        model.set_attn_implementation(attn_implementation)
        first = model(input_ids=ids[:, :13], use_cache=True)
        logits[attn_implementation] = model(input_ids=ids[:, 13:], past_key_values=first.past_key_values).logits
    assert close(logits["fovea"], logits["eager"], 1e-5)


def test_dropout_is_drawn_in_training_only():
    model = tiny("llama", "fovea")
    ids = tokens()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    once, twice = (model(input_ids=ids).logits for _ in range(2))
    assert torch.equal(once, twice)
    model.train()
    once, twice = (model(input_ids=ids).logits for _ in range(2))
    assert not torch.equal(once, twice)


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "whisper"])
def test_probabilities_are_refused(name):
    with pytest.raises((InvalidArgument, ValueError), match="output_attentions.*eager"):
        tiny(name, "fovea")(**inputs(name), output_attentions=True)


def test_masks_that_are_none():
    q = torch.randn(1, 2, 4, 8)
    with pytest.raises(InvalidArgument, match="attention_mask: 2 dimensions"):
        fovea.transformers.attend(torch.nn.Module(), q, q, q, torch.ones(1, 4))

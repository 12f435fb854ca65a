"""One request, one answer: NumPy, fovea.torch and fovea.jax refuse the same mistakes with the same words and exceptions,
and mean the same by windows."""

import importlib
import importlib.util
import inspect
import re

import numpy as np
import pytest

import fovea
from fovea import _options
from fovea._request import module_window, window_mask

Q = np.random.default_rng(5).standard_normal((2, 4, 6, 8)).astype(np.float32)
HALF, WHOLE = Q.astype(np.float16), Q.astype(np.int32)
CAP = fovea.formula("score * c", scalars={"c": "f32"})
TABLE = fovea.formula("score + t[h]", tensors={"t": "f32[H]"})
CAUSAL = fovea.formula("causal")
BY_HAND = fovea.formula("2 * score", bprop="2 * grad")


def by_numpy(q, k, v, **options):
    return fovea.attention(q, k, v, **options)


def by_torch(q, k, v, **options):
    torch = pytest.importorskip("torch")
    from fovea.torch import attention

    options = {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    return attention(*(torch.from_numpy(np.ascontiguousarray(x)) for x in (q, k, v)), **options)


def by_jax(q, k, v, **options):
    pytest.importorskip("jax")
    from fovea.jax import attention

    options = {JAX_NAMES.get(name, name): x for name, x in options.items()}
    if "cu_seqlens_q" in options:
        options["max_seqlen_q"] = 6
    return attention(q, k, v, **{"layout": "bhsd", **options})


JAX_NAMES = {"sinks": "sink", "seq_lens": "q_lengths", "k_offset": "kv_offset", "dropout_p": "dropout_rate"}
JAX_NAMES |= {"cu_seqlens": "cu_seqlens_q", "tensors": "score_mod_tensors", "scalars": "score_mod_tensors"}
FRONT_ENDS = [by_numpy, by_torch, by_jax]
MISTAKES = {
    "layout": ((Q, Q, Q), {"layout": "bdsh"}, "layout='bdsh': must be one of bhsd, bshd, sbhd, thd"),
    "rank": ((Q[0], Q, Q), {}, "q: 3 dimensions [4, 6, 8]; must be 4, as layout bhsd has"),
    "features": ((Q, Q[..., :4], Q), {}, "k: last extent 4; must be 8, as that of q"),
    "batch": ((Q, Q[:1], Q[:1]), {}, "k: 1 sequences; must be 2, as q has"),
    "heads": ((Q, Q[:, :3], Q[:, :3]), {}, "k: 3 heads; must divide the 4 of q"),
    "values": ((Q, Q, Q[:, :, :5]), {}, "v: shape [2, 4, 5, 8]; must be that of k, [2, 4, 6, 8], but for the last extent"),
    "sinks": ((Q, Q, Q), {"sinks": np.zeros(3, np.float32)}, "sinks: shape [3]; must be [4], one for each head of q"),
    "lengths": ((Q, Q, Q), {"seq_lens": np.array([3])}, "seq_lens: shape [1]; must be [2], one number per sequence"),
    "offsets": ((Q, Q, Q), {"k_offset": np.array([1])}, "k_offset: shape [1]; must be [2], one number per sequence"),
    "dropout": ((Q, Q, Q), {"dropout_p": 1.5}, "dropout_p=1.5: must be at least 0 and below 1"),
    "bprop": ((Q, Q, Q), {"score_mod_bprop": "grad"}, "score_mod_bprop: given without score_mod"),
    "two derivatives": (
        (Q, Q, Q),
        {"score_mod": BY_HAND, "score_mod_bprop": "grad"},
        "score_mod_bprop: given, but score_mod is a Program with a bprop of its own",
    ),
    "a mask": ((Q, Q, Q), {"mask_mod": fovea.formula("score")}, "mask_mod: a fovea.Program here has a mask alone"),
    "a derivative": (
        (Q, Q, Q),
        {"score_mod": "score", "score_mod_bprop": CAUSAL},
        "score_mod_bprop: a fovea.Program here has a bprop",
    ),
    "one callback": (
        (Q, Q, Q),
        {"score_mod": lambda graph, score, tensors: score, "score_mod_bprop": "grad"},
        "score_mod, score_mod_bprop: must both be callbacks (graph, score, tensors), or neither",
    ),
    "kind": ((Q, Q, Q), {"score_mod": 3}, "score_mod: must be a"),
    "types": ((Q, HALF, Q), {}, "k: f16; must be f32, as q is"),
    "type": ((WHOLE, WHOLE, WHOLE), {}, "q: i32; must be one of f32, f16, bf16, f64"),
    "real lengths": ((Q, Q, Q), {"seq_lens": np.ones(2, "f")}, "seq_lens: must be one integer per sequence, got f32 [2]"),
    "no starts": ((Q[0], Q[0], Q[0]), {"layout": "thd"}, "cu_seqlens: layout thd needs it"),
    "starts": ((Q, Q, Q), {"cu_seqlens": np.array([0, 6])}, "cu_seqlens: goes with layout thd, got bhsd"),
    "no start": ((Q[0],) * 3, {"layout": "thd", "cu_seqlens": np.zeros(0, int)}, "cu_seqlens: shape [0]; must be [B + 1]"),
    "engine": ((Q, Q, Q), {"engine": "turbo"}, "engine='turbo': must be one of cudnn, jit, cpu, reference"),
    "no tensor": ((Q, Q, Q), {"score_mod": TABLE}, "tensors: no 't', which the program captures"),
    "no scalar": ((Q, Q, Q), {"score_mod": CAP}, "tensors: no 'c', which the program captures"),
    "another name": (
        (Q, Q, Q),
        {"score_mod": CAP, "scalars": {"c": 1.0, "d": 2.0}},
        "tensors: 'd' is captured by no formula",
    ),
    "no modifier": ((Q, Q, Q), {"tensors": {"t": np.ones(4, np.float32)}}, "tensors: given without"),
    "an operand's name": (
        (Q, Q, Q),
        {"score_mod": "score * v", "scalars": {"v": 1.0}},
        "the captured name 'v': stands for an operand",
    ),
    "no dict": ((Q, Q, Q), {"score_mod": "score", "tensors": [1.0]}, "tensors: must be a dict of names, got list"),
}
# What stands for the same in each of them: names of arguments, and of types.
WORDS = {"query": "q", "key": "k", "value": "v", **{theirs: ours for ours, theirs in JAX_NAMES.items()}}
WORDS |= {"scalars": "tensors", "score_mod_tensors": "tensors", "bfloat16": "bf16", "int32": "i32"}
WORDS |= {f"float{bits}": f"f{bits}" for bits in (16, 32, 64)}


@pytest.mark.parametrize("attend", FRONT_ENDS)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_one_name(attend, name):
    tensors, options, words = MISTAKES[name]
    with pytest.raises(fovea.InvalidArgument) as error:
        attend(*tensors, **options)
    said = re.sub(r"\w+", lambda word: WORDS.get(word[0], word[0]), str(error.value).replace("torch.", ""))
    assert said.startswith(words)
    assert isinstance(error.value, ValueError) and isinstance(error.value, fovea.Error)


@pytest.mark.parametrize("attend", FRONT_ENDS)
def test_a_mask_beside_a_program_joins_its_own(attend):
    program = fovea.formula("2 * score", mask="q - k < 3")
    got = attend(Q, Q, Q, score_mod=program, mask_mod="q >= k")
    assert np.allclose(got, attend(Q, Q, Q, score_mod="2 * score", mask_mod="q >= k && q - k < 3"), atol=1e-6)


def test_one_family_of_exceptions():
    assert issubclass(fovea.TraceError, (fovea.InvalidArgument)) and issubclass(fovea.TraceError, TypeError)
    for name in ("torch", "jax"):
        pytest.importorskip(name)
        module = __import__(f"fovea.{name}", fromlist=["TraceError"])
        assert module.TraceError is fovea.TraceError


def functions(names):
    """Functions of fovea, fovea.torch and fovea.jax by their names, of modules that are there."""
    for name in names.split():
        module, _, function = name.rpartition(".")
        framework = module.partition(".")[2]
        if not framework or importlib.util.find_spec(framework):
            yield getattr(importlib.import_module(module), function)


def test_options_are_listed_once():
    """The list names what the library has, and every function that takes the options says so and refuses others."""
    assert _options.RETURNS == tuple(_options.Options.__annotations__)[: len(_options.RETURNS)]
    for name in _options.FLAGS:
        fovea._core.Problem(f"sq=4 d=8 {name}=1")
    for function in functions("fovea.attention fovea.torch.attention fovea.jax.attention"):
        assert set(_options.Handed._fields) <= set(inspect.signature(function).parameters)
        assert all(f"    {name}" in function.__doc__ or f", {name}:" in function.__doc__ for name in _options.Handed._fields)
        with pytest.raises(TypeError, match="unexpected keyword argument 'verfy'. Did you mean 'verify'"):
            function(Q, Q, Q, verfy=True)
    with_flags = "fovea.vjp fovea.attention_backward fovea.explain fovea.torch.context_parallel fovea.torch.explain"
    modules = "fovea.torch.DotProductAttention fovea.torch.MultiheadAttention"
    for function in functions(f"{with_flags} fovea.jax.context_attention {modules}"):
        assert {*_options.FLAGS, "engine"} <= set(inspect.signature(function).parameters)


@pytest.mark.parametrize("flag", _options.FLAGS)
def test_a_flag_reaches_the_problem(flag):
    """Of every front end, and not if it is False."""
    for value in (True, False):
        lines = [fovea.explain(Q, Q, Q, **{flag: value}).to_dict()["problem"]]
        if importlib.util.find_spec("torch"):
            import torch

            from fovea.torch import explain

            lines.append(explain(*[torch.from_numpy(Q)] * 3, **{flag: value}).to_dict()["problem"])
        if importlib.util.find_spec("jax"):
            from fovea.jax import attention
            from fovea.jax._call import problem_lines

            lines += problem_lines(attention, Q, Q, Q, **{flag: value})
        assert [f"{flag}=1" in line for line in lines] == [value] * len(lines)


@pytest.mark.parametrize("window", [None, 2, (2, 1), (0, 0), (-1, 2), (3, -1), (-1, -1)])
@pytest.mark.parametrize("is_causal", [False, True, "bottom_right"])
@pytest.mark.parametrize("from_the_end", [False, True])
def test_windows_by_their_definition(window, is_causal, from_the_end):
    text = window_mask(is_causal, window, from_the_end) or "true"
    q, k, Sq, Skv = np.arange(5)[:, None], np.arange(7)[None], 5, 7
    got = eval(text.replace("&&", "&").replace(" & ", ") & (").join("()"), {"q": q, "k": k, "Sq": Sq, "Skv": Skv, "true": True})
    left, right = (-1, -1) if window is None else (window, window) if isinstance(window, int) else window
    last = Skv - Sq
    i = q + (last if from_the_end or is_causal == "bottom_right" else 0)
    kept = np.ones((5, 7), bool)
    kept &= (k >= i - left) if left >= 0 else True
    kept &= (k <= i + right) if right >= 0 and not is_causal else True
    kept &= (k <= q + (last if is_causal == "bottom_right" else 0)) if is_causal else True
    assert np.array_equal(np.broadcast_to(got, kept.shape), kept)


@pytest.mark.parametrize("attend", [by_numpy, by_torch])
def test_a_window_of_one_number(attend):
    assert np.allclose(np.asarray(attend(Q, Q, Q, window_size=2)), np.asarray(attend(Q, Q, Q, window_size=(2, 2))))


def test_a_modules_window_without_a_bound_is_none():
    """Transformer Engine's rule, for the modules of torch and JAX."""
    with pytest.warns(UserWarning, match="means no window"):
        assert module_window((-1, 0), is_causal=False) is None
    assert module_window((-1, 0), is_causal=True) is None
    assert module_window(None, is_causal=False) is None
    assert module_window((5, 2), is_causal=False) == (5, 2)
    assert module_window(16, is_causal=True) == (16, 16)

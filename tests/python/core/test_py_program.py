"""Formulas as Python values: parsing, identity, derivatives."""

import pickle

import numpy as np
import pytest

import fovea


def test_a_formula_of_the_score_a_mask_and_a_line():
    mod, mask = fovea.formula("score * 2"), fovea.formula("q >= k")
    assert (mod.mod, mod.mask) == ("score * 2.0", None) and (mask.mod, mask.mask) == (None, "q >= k")
    line = fovea.formula('mod="score + t[h]" mask=causal tensor=t:f32[H] scalar=unused=3')
    assert (line.mask == "q >= k" and line.tensors == (("t", "f32", ("H",)),) and fovea.Program(line.text) == line)
    both = fovea.formula("score + d[b, q]", mask="sliding(4)", bprop="grad", tensors={"d": ("f16", ("B", "Sq"))})
    assert both.bprop == "grad" and both.tensors == (("d", "f16", ("B", "Sq")),)
    assert fovea.formula("score * n", scalars={"n": 3, "x": 1.5, "y": "f32"}).scalars[0] == ("n", "i32", 3.0)
    assert fovea.formula("score * x", scalars={"x": np.float32(1.5)}).scalars == (("x", "f32", 1.5),)


def test_structure_is_identity():
    first = fovea.formula("score * a + t[h]", tensors={"t": "f32[H]"}, scalars={"a": 1.0})
    second = fovea.formula("u[h] + bb * score", tensors={"u": "f32[H]"}, scalars={"bb": 2.0})
    assert first == second and hash(first) == hash(second) and len({first, second}) == 1
    assert first != fovea.formula("score * a + t[h]", tensors={"t": "f16[H]"}, scalars={"a": 1.0})
    assert first != fovea.formula("score") and first != "score"


def test_programs_are_pickled_and_printed():
    program = fovea.formula("cap * tanh(score / cap)", mask="causal", scalars={"cap": 30.0})
    assert pickle.loads(pickle.dumps(program)) == program
    assert repr(program).startswith("fovea.Program('mod=") and "cap * tanh(score / cap)" in str(program)


def test_derivatives():
    program = fovea.formula("score + slopes[h] * (k - q)", tensors={"slopes": "f32[H]"})
    assert program.derivative("score") == "1.0"
    assert program.derivative("slopes") == "slopes[h] => f32(k - q)"
    everything = program.derivative()
    assert "d mod / d score" in everything and repr(everything) == str(everything)
    assert everything._repr_html_().startswith("<pre>mod")
    with pytest.raises(fovea.InvalidArgument, match="slope"):
        program.derivative("slope")


def test_a_bprop_is_checked():
    assert fovea.formula("2 * score", bprop="2 * grad").check_bprop()[0] == 0
    error, where = fovea.formula("2 * score", bprop="3 * grad").check_bprop(seed=5, points=10)
    assert error > 0.1 and "seed 5" in where


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: fovea.formula("scor"), "unknown name 'scor'; did you mean 'score'?"),
        (lambda: fovea.formula("mod=score", mask="causal"), "text is a whole line; give mask"),
        (lambda: fovea.formula("score", tensors={"t": "f32"}), "tensors['t']='f32': must be like 'f32[H]'"),
        (lambda: fovea.formula("score", tensors={"t": "f32[Heads]"}), "Heads"),
        (lambda: fovea.formula("score", tensors={"t": np.ones(8)}), "must be like 'f32[H]'"),
        (lambda: fovea.formula("score * x"), "give it in tensors={...} or scalars={...}"),
        (lambda: fovea.formula("score", scalars={"x": "f64"}), "scalars['x']='f64': must be"),
        (lambda: fovea.formula("score", scalars={"x": True}), "scalars['x']=True: must be"),
        (lambda: fovea.formula('score "'), "mod"),
        (lambda: fovea.formula(bprop="grad"), "bprop is given without mod"),
    ],
)
def test_mistakes_are_named(make, text):
    with pytest.raises(fovea.InvalidArgument) as error:
        make()
    assert text in str(error.value)

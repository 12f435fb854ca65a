"""Formulas as Python values: parsing, identity, derivatives, pictures."""

import pickle
import re
import struct
import zlib

import numpy as np
import pytest

import fovea


def test_a_formula_of_the_score_a_mask_and_a_line():
    mod, mask = fovea.formula("score * 2"), fovea.formula("q >= k")
    assert (mod.mod, mod.mask) == ("score * 2.0", None) and (mask.mod, mask.mask) == (None, "q >= k")
    line = fovea.formula('mod="score + t[h]" mask=causal tensor=t:f32[H] scalar=unused=3')
    assert (
        line.mask == "q >= k" and line.tensors == (("t", "f32", ("H",)),) and fovea.Program(line.text) == line
    )
    both = fovea.formula(
        "score + d[b, q]", mask="sliding(4)", bprop="grad", tensors={"d": ("f16", ("B", "Sq"))}
    )
    assert both.bprop == "grad" and both.tensors == (("d", "f16", ("B", "Sq")),)
    assert fovea.formula("score * n", scalars={"n": 3, "x": 1.5, "y": "f32"}).scalars[0] == ("n", "i32", 3.0)


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
        (
            lambda: fovea.formula("score", tensors={"t": "f32"}),
            "tensors['t'] is 'f32'; it must be like 'f32[H]'",
        ),
        (lambda: fovea.formula("score", tensors={"t": "f32[Heads]"}), "Heads"),
        (lambda: fovea.formula("score", scalars={"x": "f64"}), "scalars['x'] is 'f64'"),
        (lambda: fovea.formula("score", scalars={"x": True}), "scalars['x'] is True"),
        (lambda: fovea.formula('score "'), "mod"),
        (lambda: fovea.formula(bprop="grad"), "bprop is given without mod"),
    ],
)
def test_mistakes_are_named(make, text):
    with pytest.raises(fovea.InvalidArgument) as error:
        make()
    assert text in str(error.value)


def pixels(png):
    """Rows of RGB of a PNG as Picture writes it."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, size = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        size = struct.unpack(">II", body[:8]) if kind == b"IHDR" else size
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height = size
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_a_picture_shows_what_is_kept_and_how_large_it_is():
    picture = fovea.formula("score + k", mask="causal").show(sq=4, score=1.0)
    assert picture.values[3] == [1.0, 2.0, 3.0, 4.0] and picture.values[0] == [1.0, None, None, None]
    assert (picture.low, picture.high) == (1.0, 4.0) and "[1 ... 4]" in repr(picture)
    seen = pixels(picture.png(cell=1))
    assert seen.shape == (4, 4, 3) and tuple(seen[0, 1]) == (226, 226, 226)
    assert tuple(seen[3, 0]) == (38, 28, 84) and tuple(seen[3, 3]) == (249, 229, 60)
    assert pixels(picture._repr_png_()).shape == (320, 320, 3)
    assert re.match(r'<figure><img alt="" src="data:image/png;base64,', picture._repr_html_())


def test_a_picture_with_captured_things(tmp_path):
    program = fovea.formula("score * t[h] + x", tensors={"t": "f32[H]"}, scalars={"x": 1.0})
    picture = program.show(score=2.0, h=1, heads=2, sq=2, skv=3, tensors={"t": np.float32([1, 5])})
    assert picture.values == [[11.0] * 3] * 2
    assert program.show(score=2.0, sq=1, tensors={"t": np.float32([1])}, scalars={"x": 0.0}).values == [[2.0]]
    assert program._repr_png_() is None and "x + score * t[h]" in program._repr_html_()
    picture.save(tmp_path / "head.png")
    assert (tmp_path / "head.png").read_bytes() == picture.png()
    with pytest.raises(fovea.InvalidArgument, match="tensors has no 't'"):
        program.show()
    with pytest.raises(fovea.InvalidArgument, match="b, h is 0, 2; there are 1 sequences and 2 heads"):
        program.show(h=2, heads=2, tensors={"t": np.float32([1, 5])})
    with pytest.raises(fovea.InvalidArgument, match="a picture has between 1 and"):
        fovea.formula("causal").show(sq=100000)


def test_a_picture_of_numbers_that_are_none():
    picture = fovea.formula("q == 0 ? -inf : q == 1 ? nan : q == 2 ? inf : score").show(sq=4, skv=1)
    grey, red, top, middle = (tuple(row[0]) for row in pixels(picture.png(cell=1)))
    assert (
        grey == (226, 226, 226)
        and red == (214, 39, 40)
        and top == (249, 229, 60)
        and middle not in (grey, red, top)
    )
    assert "nothing is kept" in repr(fovea.formula("q < 0").show(sq=2))

"""Pictures of programs: their values, colours and files, and what happens without matplotlib."""

import re

import numpy as np
import pytest

import fovea
from fovea.picture import PALETTE, RAMPS

agg = pytest.importorskip("matplotlib.backends.backend_agg")


def cells(picture):
    """The colour in the middle of each cell, as matplotlib draws it."""
    figure = picture.figure()
    canvas = agg.FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[::-1, :, :3]  # from the bottom up, as coordinates are
    rows, columns = len(picture.values), len(picture.values[0])
    middles = [(k + 0.5, q + 0.5) for q in range(rows) for k in range(columns)]
    places = figure.axes[0].transData.transform(middles).astype(int)
    return pixels[places[:, 1], places[:, 0]].reshape(rows, columns, 3)


def colour(name):
    return PALETTE[name] if name in PALETTE else tuple(bytes.fromhex(name))


def test_a_picture_shows_what_is_kept_and_how_large_it_is():
    picture = fovea.formula("score + k", mask="causal").show(sq=4, score=1.0)
    assert picture.values[3] == [1.0, 2.0, 3.0, 4.0] and picture.values[0] == [1.0, None, None, None]
    assert (picture.low, picture.high) == (1.0, 4.0) and "[1 ... 4]" in repr(picture)
    seen, ramp = cells(picture), RAMPS["sequential"].split()
    assert tuple(seen[0, 1]) == colour("masked_score")
    assert tuple(seen[3, 0]) == colour(ramp[0]) and tuple(seen[3, 3]) == colour(ramp[-1])
    seen, ramp = cells(fovea.formula("score + (k - q)").show(sq=3)), RAMPS["diverging"].split()
    assert [tuple(seen[q, 1]) for q in (0, 1, 2)] == [tuple(bytes.fromhex(ramp[i])) for i in (12, 8, 4)]


def test_tiles_tint_a_mask_and_are_counted():
    picture = fovea.formula("causal").show(sq=12, tile=4)
    seen = cells(picture)
    assert tuple(seen[0, 0]) == colour("kept_in_mixed") and tuple(seen[0, 1]) == colour("masked_in_mixed")
    assert tuple(seen[9, 1]) == colour("kept") and tuple(seen[1, 9]) == colour("masked")
    words = [text.get_text() for text in picture.figure().legends[0].get_texts()]
    assert words == ["kept  54.2 %", "masked  45.8 %"] + [f"{x} tiles  3 (33.3 %)" for x in ("empty", "full", "mixed")]
    with pytest.raises(fovea.InvalidArgument, match="tile is 0"):
        fovea.formula("causal").show(tile=0)


def test_a_picture_with_captured_things():
    program = fovea.formula("score * t[h] + x", tensors={"t": "f32[H]"}, scalars={"x": 1.0})
    picture = program.show(score=2.0, h=1, heads=2, sq=2, skv=3, tensors={"t": np.float32([1, 5])})
    assert picture.values == [[11.0] * 3] * 2
    assert program.show(score=2.0, sq=1, tensors={"t": np.float32([1])}, scalars={"x": 0.0}).values == [[2.0]]
    assert program._repr_png_() is None and "x + score * t[h]" in program._repr_html_()
    with pytest.raises(fovea.InvalidArgument, match="tensors: no 't'"):
        program.show()
    with pytest.raises(fovea.InvalidArgument, match="b, h is 0, 2; there are 1 sequences and 2 heads"):
        program.show(h=2, heads=2, tensors={"t": np.float32([1, 5])})
    with pytest.raises(fovea.InvalidArgument, match="a picture has between 1 and"):
        fovea.formula("causal").show(sq=100000)


def test_a_picture_of_numbers_that_are_none():
    picture = fovea.formula("q == 0 ? -inf : q == 1 ? nan : q == 2 ? inf : score").show(sq=4, skv=1)
    masked, nan, inf, middle = (tuple(row[0]) for row in cells(picture))
    assert masked == colour("masked_score") and nan == inf == colour("not_finite") and middle not in (masked, nan)
    nothing = fovea.formula("q < 0").show(sq=2)
    assert "nothing is kept" in repr(nothing) and tuple(cells(nothing)[0, 0]) == colour("masked")
    fovea.formula("-inf").show(sq=2).figure()


def test_files_are_of_the_kind_that_their_names_say(tmp_path):
    picture = fovea.formula("causal").show(sq=2)
    assert picture._repr_png_().startswith(b"\x89PNG")
    for name, start in {"a.png": b"\x89PNG", "a.svg": b"<?xml", "a.pdf": b"%PDF-"}.items():
        picture.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(ValueError, match="Format 'xyz' is not supported"):
        picture.save(tmp_path / "b.xyz")
    with pytest.raises(FileNotFoundError):
        picture.save(tmp_path / "missing" / "b.png")
    assert len(list(tmp_path.iterdir())) == 3
    assert fovea.formula("causal")._repr_html_().startswith('<figure><img alt="" src="data:image/png;base64,')


def test_without_matplotlib_values_are_there_and_drawing_says_what_to_install(in_new_process):
    code = """
import sys
sys.modules["matplotlib"] = None
import fovea
picture = fovea.formula("causal").show(sq=2)
print(picture.values, picture._repr_png_(), fovea.formula("causal")._repr_html_())
try:
    picture.save("x.png")
except ImportError as error:
    print(error)
"""
    out = in_new_process(code)
    assert out.startswith("[[1.0, None], [1.0, 1.0]] None <figure><figcaption>") and "pip install 'fovea[plot]'" in out


def test_the_program_has_the_same_colours(root):
    header, source = ((root / f"cli/draw/picture.{kind}").read_text() for kind in ("h", "cpp"))
    named = re.findall(r"constexpr Color (\w+)\{(\d+), (\d+), (\d+)\}", header)
    assert {name: tuple(map(int, parts)) for name, *parts in named} == PALETTE
    for kind, ramp in RAMPS.items():
        numbers = re.search(rf"{kind}_ramp\{{(.*?)\}}", source, re.DOTALL)[1]
        assert re.findall(r"0x(\w+)", numbers) == ramp.split()

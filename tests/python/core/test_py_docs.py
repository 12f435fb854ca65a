"""docs/python.md is run as it stands: every block, in order, in one interpreter; so are the examples in docstrings.
docs/gallery.md is what tools/gallery.py makes of its entries, and every entry has its picture."""

import doctest
import importlib
import re
import sys

import pytest

import fovea._attention
import fovea._request
import fovea.program


def blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_block_of_the_page_runs(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    found = blocks((root / "docs/python.md").read_text())
    assert len(found) >= 8
    for number, code in enumerate(found):
        exec(compile(code, f"docs/python.md, block {number + 1}", "exec"), names)
    out = capsys.readouterr().out
    assert (tmp_path / "window.png").read_bytes().startswith(b"\x89PNG")
    # What comments say is printed is printed.
    assert "let t0 = tanh(score / cap); cap * (1.0 - t0 * t0) / cap\n" in out
    assert "(tanh((score / cap[0, 0, 0, 0])) * cap[0, 0, 0, 0])\n" in out


def test_every_argument_of_attention_is_in_its_table(root):
    import inspect

    table = (root / "docs/python.md").read_text().split("| argument | meaning |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert set(inspect.signature(fovea.attention).parameters) - {"q", "k", "v"} <= named


def test_examples_in_docstrings():
    for module in (fovea._attention, fovea._request, fovea.program):
        result = doctest.testmod(module)
        assert result.attempted > 0 and result.failed == 0


@pytest.fixture
def gallery(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "tools"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module("gallery")


def test_the_page_is_the_scripts(root, gallery):
    if not list(root.glob(".venv-cuda/lib/python3*/site-packages/nvidia/cudnn/lib")):
        pytest.skip("which engine runs on an H200 is asked with cuDNN's libraries at hand; ./dev setup fetches them")
    assert gallery.page() == (root / "docs/gallery.md").read_text(), "./dev python tools/gallery.py writes it anew"


def test_every_entry_has_its_picture(gallery):
    assert len(gallery.ENTRIES) == 20
    names = {f"{entry.name}.png" for entry in gallery.ENTRIES}
    assert {path.name for path in gallery.PICTURES.iterdir()} == names
    for name in names:
        assert (gallery.PICTURES / name).read_bytes().startswith(b"\x89PNG")

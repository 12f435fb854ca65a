"""docs/gallery.md is what tools/gallery.py makes of its entries, and every entry has its picture."""

import importlib
import sys

import pytest


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

"""docs/python.md is run as it stands: every block, in order, in one interpreter; so are the examples in docstrings.
docs/gallery.md has the table that tools/gallery.py writes, and every entry has its picture."""

import doctest
import importlib
import os
import re
import sys
import zipfile

import numpy
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


# --- The wheel of ./dev wheel: it says where it runs, is installed into an environment of its own, and used there ---


def test_the_wheel_is_built_installed_and_used(root, run, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(root / "dev", "wheel", tmp_path, env=environment)
    (wheel,) = tmp_path.glob("fovea-*.whl")
    # Enterprise Linux 9, Ubuntu 22.04 and Debian 12 have glibc 2.34 or newer.
    (minor,) = re.findall(r"-manylinux_2_(\d+)_", wheel.name)
    assert int(minor) <= 34, wheel.name
    inside = zipfile.ZipFile(wheel).namelist()
    assert "fovea/py.typed" in inside and "fovea/_core.pyi" in inside and "fovea/recorder/graph.py" in inside
    assert [name for name in inside if "libfovea" in name] == ["fovea/libfovea.so.0.1"]
    assert not [name for name in inside if "__pycache__" in name or name.startswith(("lib/", "include/", "bin/"))]

    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    run(
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "--python",
        python,
        "install",
        "--no-index",
        wheel,
    )
    # Away from the tree, without any variable that could lead back to it.
    code = "import fovea; print(fovea.__file__, fovea.__version__); fovea.doctor(); print(fovea.explain('sq=64').chosen)"
    out = run(python, "-I", "-c", code, cwd=tmp_path, env=environment).stdout
    assert out.startswith(site) and f"package       {site}/fovea/_core" in out and out.endswith("cpu\n")
    maps = ("import fovea; print([line.split()[-1] for line in open('/proc/self/maps') if 'libfovea' in line][0])")
    assert (
        run(python, "-I", "-c", maps, cwd=tmp_path, env=environment).stdout.strip()
        == f"{site}/fovea/libfovea.so.0.1"
    )

    command = run(tmp_path / "venv/bin/fovea", "explain", "sq=64", cwd=tmp_path, env=environment).stdout
    assert command == run(python, "-I", "-m", "fovea", "explain", "sq=64", env=environment).stdout
    assert "cpu" in command

    # NumPy from this environment: a wheel of it would have to be fetched.
    numpy_folder = os.path.dirname(os.path.dirname(numpy.__file__))
    code = "import numpy, fovea; x = numpy.ones((1, 2, 9, 8), 'f'); print(fovea.attention(x, x, x, is_causal=True).sum())"
    script = f"import sys; sys.path.append({numpy_folder!r}); {code}"
    assert run(python, "-I", "-c", script, cwd=tmp_path, env=environment).stdout.strip() == "144.0"

"""What the package says of itself: explanations, counters, doctor, versions, types."""

import ast
import re

import numpy as np
import pytest

import fovea
from fovea import _core

X = np.ones((1, 2, 8, 4), np.float32)


def test_explain_of_a_call():
    explanation = fovea.explain(X, X, X, is_causal=True, return_lse=True)
    facts = explanation.to_dict()
    assert explanation.chosen == facts["chosen"] == "cpu"
    assert [engine["engine"] for engine in facts["engines"]] == list(fovea.engines())
    assert str(explanation) == repr(explanation) and "cpu        proven" in str(explanation)
    html = explanation._repr_html_()
    assert "<table>" in html and "cpu (chosen)" in html and "q &gt;= k" in html
    facts["engines"].clear()
    assert explanation.to_dict()["engines"]


def test_explain_of_a_line_and_of_another_device():
    assert fovea.explain("b=2 h=8 sq=64 direction=both").chosen == "cpu"
    double = fovea.explain("sq=64 dtype=f64")
    assert double.chosen is None and "use engine reference for f64" in double._repr_html_()
    assert fovea.explain("sq=64 dtype=f64", engine="reference").chosen == "reference"
    assert fovea.explain("sq=64", device="h200").to_dict()["device"]["name"] == "NVIDIA H200"
    assert fovea.explain(X, X, X, backward=True, prove=True).chosen == "cpu"
    builds = fovea.cache_stats()["builds"]
    fovea.explain("sq=99 d=24")
    assert fovea.cache_stats()["builds"] == builds


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: fovea.explain("sqq=3"), "unknown key 'sqq'"),
        (lambda: fovea.explain("sq=3", X), "explain takes a problem line alone"),
        (lambda: fovea.explain("sq=3", is_causal=True), "has no option 'is_causal': write it in the line"),
        (lambda: fovea.explain("sq=3", device="h2000"), "h2000"),
    ],
)
def test_mistakes_of_explain_are_named(call, text):
    with pytest.raises(fovea.InvalidArgument) as error:
        call()
    assert text in str(error.value)


def test_counters_count():
    fovea.cache_clear()
    start = fovea.cache_stats()
    assert {"builds", "hits", "misses", "evictions", "plans", "bytes", "build_seconds"} <= set(start)
    fovea.attention(X, X, X, score_mod="score * 1.0625")
    after = fovea.cache_stats()
    assert after["builds"] == start["builds"] + 1 and after["plans"] == 1 and after["bytes"] > 0
    assert after["build_seconds"] > start["build_seconds"]
    fovea.cache_limit(plans=1)
    fovea.attention(X, X, X, score_mod="tanh(score)")
    assert fovea.cache_stats()["evictions"] > after["evictions"]
    fovea.cache_limit(plans=1024)


def test_a_bundle_that_is_none_is_refused(tmp_path):
    (tmp_path / "plans").write_bytes(b"these are no plans")
    with pytest.raises(fovea.Error, match="bundle|plans"):
        fovea.load_bundle(tmp_path / "plans")
    with pytest.raises(fovea.Error):
        fovea.load_bundle(str(tmp_path / "nothing here"))


def test_plans_are_kept_in_a_bounded_table():
    from fovea._plans import LruCache

    cache = LruCache(3)
    for i in range(5):
        cache.put(i, str(i))
    assert cache.get(0) is None and cache.get(2) == "2" and len(cache) == 3
    cache.put(9, "9")  # 2 was asked for, so 3 is the oldest
    assert cache.get(3) is None and cache.get(2) == "2"


def test_an_engine_named_by_the_environment(monkeypatch):
    before = fovea.attention(X, X, X)
    monkeypatch.setenv("FOVEA_ENGINE", "no_such_engine")
    with pytest.raises(fovea.Error, match="no_such_engine"):
        fovea.attention(X, X, X)
    monkeypatch.setenv("FOVEA_ENGINE", "reference")
    assert np.allclose(fovea.attention(X, X, X), before)


def test_doctor_prints_what_is_there(capsys):
    assert fovea.doctor() is None
    out = capsys.readouterr().out
    assert (
        out.startswith(f"fovea         {fovea.__version__}")
        and f"engines       {', '.join(fovea.engines())}" in out
    )
    assert "package       " in out and f"numpy {np.__version__}" in out


def test_the_version_is_that_of_the_header(root):
    header = (root / "include/fovea/fovea.h").read_text()
    numbers = [re.search(rf"FOVEA_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    assert fovea.__version__ == ".".join(numbers)


def test_verbose_lines_go_to_a_function(in_new_process):
    code = """
import fovea, numpy
lines = []
fovea.set_log(lines.append)
x = numpy.ones((1, 1, 4, 8), numpy.float32)
fovea.attention(x, x, x, is_causal=True)
fovea.set_log(None)
print(any("q >= k" in line for line in lines), len(lines) > 0)
"""
    assert in_new_process(code, FOVEA_VERBOSE="1").split() == ["True", "True"]


def test_stubs_have_what_the_core_has(root):
    """The .pyi is written by hand: every class, method and function must be in both."""
    tree = ast.parse((root / "bindings/python/fovea/_core.pyi").read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    values = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    there = {name for name in vars(_core) if not name.startswith("__")}
    assert functions | set(classes) | values == there
    for name, node in classes.items():
        stub = {
            item.name
            for item in node.body
            if isinstance(item, ast.FunctionDef) and not item.name.startswith("__")
        }
        real = {member for member in vars(getattr(_core, name)) if not member.startswith("_")}
        assert stub == real, name


def test_stubs_know_keywords_of_run(root):
    """Those of the list of fields are all that `**bound` stands for."""
    tree = ast.parse((root / "bindings/python/fovea/_core.pyi").read_text())
    run = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "run")
    plan = _core.Plan(_core.Problem("sq=4 d=8"))
    with pytest.raises(fovea.InvalidArgument) as error:
        plan.run(nothing=1)
    named = str(error.value).split("there are: ")[1].split(", ")
    assert {a.arg for a in run.args.kwonlyargs} <= set(named) and run.args.kwarg


def test_everything_public_is_documented_and_listed():
    for name in fovea.__all__:
        assert getattr(fovea, name).__doc__, name
    public = {
        name
        for name in vars(fovea)
        if not name.startswith("_") and not hasattr(getattr(fovea, name), "__path__")
    }
    modules = {name for name in public if type(getattr(fovea, name)).__name__ == "module"}
    assert public - modules == set(fovea.__all__)

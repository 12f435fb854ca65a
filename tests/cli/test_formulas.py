"""Every formula of examples/formulas.txt works in every verb, as the file promises."""
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parent.parent.parent / "examples/formulas.txt"


def formulas():
    """(name, line): a comment `# name: what it does` stands above each line."""
    name, found = "", []
    for text in FILE.read_text().splitlines():
        if text.startswith("#"):
            name = text[1:].split(":")[0].strip()
        elif text:
            found.append(pytest.param(text, id=name.replace(" ", "_")))
    return found


def small(line):
    return line.replace("b=2", "b=1").replace("h=8", "h=2").replace("sq=256", "sq=40").replace("skv=256", "skv=40").replace("d=64", "d=8")


def test_there_are_at_least_ten():
    assert len(formulas()) >= 10


@pytest.mark.parametrize("line", formulas())
def test_show(fovea, line, tmp_path):
    fovea("show", line, "-o", tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000
    assert fovea("show", line).stdout.count("\n") > 10


@pytest.mark.parametrize("line", formulas())
def test_diff(fovea, refused, line):
    if "mod=" in line:
        assert "d mod / d score\n" in fovea("diff", line).stdout
    else:
        assert "a mask has no derivative" in refused("diff", line)


@pytest.mark.parametrize("line", formulas())
def test_run_and_check(fovea, line):
    fovea("run", small(line) + " direction=both", "--engine", "reference", "--check")

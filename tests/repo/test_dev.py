"""./dev lists its verbs, knows what was meant, and works from anywhere with next to no environment."""
import os
import re

import pytest

VERBS = {"setup", "build", "demo", "test", "bench", "gpu", "fuzz", "format", "python", "julia"}


@pytest.fixture
def dev(root, run, tmp_path):
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return lambda *words: run(root / "dev", *words, check=False, cwd=tmp_path, env=environment)


def test_alone_it_lists_every_verb(dev):
    result = dev()
    assert result.returncode == 0
    assert set(re.findall(r"^  (\w+) +\S", result.stdout, re.MULTILINE)) == VERBS


@pytest.mark.parametrize("typed, meant", [("biuld", "build"), ("tests", "test"), ("fromat", "format"), ("pyhton", "python")])
def test_unknown_verb_suggests_the_nearest(dev, typed, meant):
    result = dev(typed)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"'{typed}'; did you mean '{meant}'?" in result.stderr


def test_python_runs_with_the_package_importable(dev):
    result = dev("python", "-c", "import sys, fovea; print(fovea.__version__, sys.argv[1:])", "an argument")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("['an argument']\n") and result.stdout.count("\n") == 1


@pytest.mark.parametrize("words", [("bench", "nothing"), ("fuzz", "nothing"), ("format", "--chekc")])
def test_unknown_argument_is_an_error(dev, words):
    result = dev(*words)
    assert result.returncode == 2
    assert words[1] in result.stderr


def test_ci_runs_the_tests_and_nothing_else(root):
    code = [line for line in (root / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert code[0] == "set -euo pipefail"
    assert len(code) == 2 and code[1].endswith('dev" test')

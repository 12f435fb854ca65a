"""./dev lists its verbs and works from anywhere with next to no environment."""
import os
import re

import pytest

VERBS = {"setup", "build", "demo", "test", "bench", "gpu", "fuzz", "format", "wheel", "python", "julia"}


@pytest.fixture
def dev(root, run, tmp_path):
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return lambda *words: run(root / "dev", *words, check=False, cwd=tmp_path, env=environment)


def test_alone_it_lists_every_verb(dev):
    result = dev()
    assert result.returncode == 0
    assert set(re.findall(r"^  (\w+) +\S", result.stdout, re.MULTILINE)) == VERBS


def test_unknown_verb_lists_those_that_there_are(dev):
    result = dev("tests")
    assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1
    assert result.stderr.startswith("dev: no verb 'tests'; there are: ")
    assert set(result.stderr.split("there are: ")[1].split()) == VERBS


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

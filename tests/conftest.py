"""What the Python tests share: where the tree is, what ./dev build made, and how commands are run."""
import os
import subprocess
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """FOVEA_TEST_SHARD=2/8: every eighth test of those that are asked for, from the third on. So that processes can share a
    file."""
    shard, _, count = os.environ.get("FOVEA_TEST_SHARD", "").partition("/")
    if not shard:
        return
    kept = [item for i, item in enumerate(items) if i % int(count) == int(shard)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.fixture(scope="session")
def root():
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def build(root):
    folder = root / "build"
    assert (folder / "libfovea.so").exists(), "run ./dev build first"
    return folder


@pytest.fixture(scope="session")
def run():
    """run(*command) with text output captured; check=False lets it fail."""

    def run_command(*command, check=True, **options):
        command = [os.fspath(word) for word in command]
        result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        if check:
            assert result.returncode == 0, f"{command} failed:\n{result.stdout}{result.stderr}"
        return result

    return run_command


@pytest.fixture(scope="session")
def fovea(build, run):
    """fovea(*words) runs the program and gives back what it printed; fails if it does."""
    return lambda *words, **options: run(build / "fovea", *words, **options)


@pytest.fixture(scope="session")
def refused(fovea):
    """refused(*words) is the one line of a user's mistake: exit code 2, nothing on standard output."""

    def run_refused(*words):
        result = fovea(*words, check=False)
        assert result.returncode == 2, f"exit {result.returncode}:\n{result.stdout}{result.stderr}"
        assert result.stdout == ""
        assert result.stderr.startswith("fovea: ")
        return result.stderr

    return run_refused

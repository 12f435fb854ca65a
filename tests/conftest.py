"""What the Python tests share: where the tree is, what ./dev build made, and how commands are run."""
import os
import subprocess
from pathlib import Path

import pytest


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

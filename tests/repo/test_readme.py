"""The code in the README is code that the tests build and run."""
import os
import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize("language, suffix", [("cpp", "cpp"), ("python", "py"), ("julia", "jl")])
def test_blocks_are_examples(root, language, suffix):
    blocks = re.findall(rf"```{language}\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    examples = [path.read_text() for path in (root / "examples" / language).glob(f"*.{suffix}")]
    assert blocks, f"the README has no example in {language}"
    for block in blocks:
        assert block in examples, f"this block is no file of examples/{language}:\n" + block


def test_the_python_example_runs(root, build, tmp_path):
    package = build / "python"
    assert package.is_dir(), "the Python package is not built: ./dev test builds it"
    environment = dict(os.environ, PYTHONPATH=str(package))
    script = root / "examples/python/softcap_alibi.py"
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "window.png").read_bytes().startswith(b"\x89PNG")
    assert "cudnn" in done.stdout

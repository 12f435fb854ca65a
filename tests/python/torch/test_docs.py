"""Every Python block of docs/pytorch.md runs, in order, as a reader would type it."""
import re
from pathlib import Path

import pytest
import torch

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/pytorch.md"


def blocks():
    text = DOCUMENT.read_text()
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start()) + 2, found[1]


def test_every_snippet_runs(capsys):
    torch._dynamo.reset()
    space, count = {"__name__": "docs"}, 0
    for line, source in blocks():
        try:
            exec(compile("\n" * (line - 1) + source, str(DOCUMENT), "exec"), space)
        except Exception as error:
            pytest.fail(f"docs/pytorch.md, the block at line {line}: {type(error).__name__}: {error}")
        count += 1
    assert count >= 11 and "chosen" in capsys.readouterr().out

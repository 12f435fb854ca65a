"""What a GPU runs: cuda_set.txt has each test of fovea.jax with its verdict, "passes" or "refused".

A session judges the tests that it ran, so that files may be run by processes side by side.
FOVEA_TEST_DEVICE=cuda FOVEA_TEST_WRITE=1 writes the verdicts of this session into the file; all others stay.
"""

from __future__ import annotations

import fcntl
import os
import pathlib

PINNED = pathlib.Path(__file__).parent / "cuda_set.txt"
HEAD = "# fovea.jax's tests on a GPU. Made by: FOVEA_TEST_DEVICE=cuda FOVEA_TEST_WRITE=1 pytest\n"
_lines: dict[str, str] = {}  # name -> verdict, with the reason after a '#'


def writing() -> bool:
    return bool(os.environ.get("FOVEA_TEST_WRITE"))


def seen(item, refusal: str | None = None) -> None:
    """A test has passed, or was refused."""
    name = _name(item)
    _lines[name] = f"passes  {name}" if refusal is None else f"refused  {name}  # {_reason(refusal)}"


def compare(session) -> list[str]:
    """What differs from the pinned set."""
    if not PINNED.exists():
        return [f"there is no {PINNED.name}"] if _lines else []
    pinned = _read(PINNED.read_text())
    changed = [
        f"{name}: {_verdict(line)}, pinned {_verdict(pinned.get(name, 'nothing'))}"
        for name, line in _lines.items()
        if _verdict(line) != _verdict(pinned.get(name, "nothing"))
    ]
    return changed + [f"{name}: pinned, but there is no such test" for name in _gone(session, pinned)]


def write(session) -> list[str]:
    """Puts this session's tests into the file; other sessions may do so at the same time."""
    with PINNED.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        pinned = _read(file.read())
        for name in _gone(session, pinned):
            del pinned[name]
        pinned.update(_lines)
        file.truncate(0)
        file.write(HEAD + "".join(f"{pinned[name]}\n" for name in sorted(pinned)))
    return []


def _gone(session, pinned: dict[str, str]) -> list[str]:
    """Pinned tests of the files that this session has whole, which are in them no more."""
    options = session.config.option
    if options.keyword or options.markexpr or any("::" in word for word in session.config.args):
        return []
    names = {_name(item) for item in session.items}
    files = {name.split("::")[0] for name in names}
    return [name for name in pinned if name.split("::")[0] in files and name not in names]


def _read(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    return {line.split("  # ")[0].split("  ", 1)[1]: line for line in lines}


def _verdict(line: str) -> str:
    return line.split("  ")[0]


def _name(item) -> str:
    return f"{item.path.name}::{item.name}"


def _reason(text: str) -> str:
    """That of engine cudnn in the table of all, or the first line."""
    lines = [line.partition(" no ")[2] for line in text.splitlines() if line.startswith("cudnn ")]
    return next((line.strip() for line in lines if line), text.splitlines()[0])[:200]

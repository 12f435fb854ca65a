"""On a GPU a case passes, or is refused with every engine's reasons. Which pass is pinned in cuda_cases.txt:
FOVEA_TEST_PIN=write writes what passed into it."""

import fcntl
import os
from pathlib import Path

import fovea

FILE = Path(__file__).with_name("cuda_cases.txt")
PASSED, REFUSED = [], []


def expect(name, device, check) -> bool:
    """Runs check(), and says whether it passed. On the CPU it must; elsewhere it may be refused where the list does not
    have it."""
    if device.type == "cpu":
        check()
        return True
    try:
        check()
    except fovea.Unsupported as refusal:
        text = str(refusal)
        for engine in fovea.engines():
            assert engine in text, f"{name}: the refusal does not say why {engine} can't:\n{text}"
        REFUSED.append((name, text))
        assert writing() or name not in pinned(), f"{name} is pinned as passing, but was refused:\n{text}"
        return False
    PASSED.append(name)
    assert writing() or name in pinned(), f"{name} passes now: add it to {FILE.name} (FOVEA_TEST_PIN=write)"
    return True


def writing() -> bool:
    return os.environ.get("FOVEA_TEST_PIN") == "write"


def pinned():
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def write():
    """What this run saw replaces what was pinned of it; the rest stays."""
    seen = {*PASSED, *(name for name, _ in REFUSED)}
    text = "# Cases of tests/python/torch that run on a GPU; all others are refused with reasons.\n"
    text += "# Written by FOVEA_TEST_PIN=write FOVEA_TEST_DEVICE=cuda; every change of it is looked at.\n"
    with FILE.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other files of tests may be run by processes beside this one
        kept = sorted((pinned() - seen) | set(PASSED))
        file.truncate(0)
        file.write(text + "\n".join(kept) + "\n")

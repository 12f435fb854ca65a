"""What the tests of fovea.jax share: skips that are seen, eight devices, the set that a GPU runs."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from jax_setup import DEVICE, PACKAGE, seed  # noqa: E402  (before anything imports JAX)

import pytest  # noqa: E402


def pytest_report_header():
    return f"fovea.jax: device {DEVICE}, seed {seed()}, package {PACKAGE}"


try:
    import jax  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_jax_*.py"]  # test_present.py says so


# --- on a GPU: each test passes, or an engine refuses with reasons; which, is pinned in a file ---

PINNED = pathlib.Path(__file__).parent / "cuda_set.txt"
_refused: dict[str, str] = {}
_ran: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if DEVICE != "cuda":
        return (yield)
    import jax

    import fovea

    _ran.add(_name(item))
    try:
        return (yield)
    except (fovea.Unsupported, jax.errors.JaxRuntimeError) as error:
        text = str(error)
        if not isinstance(error, fovea.Unsupported) and "UNIMPLEMENTED: fovea" not in text:
            raise
        assert ":" in text, f"a refusal without reasons: {text}"
        _refused[_name(item)] = text.splitlines()[0][:200]


def _name(item) -> str:
    return f"{item.path.name}::{item.name}"


def pytest_sessionfinish(session):
    """Compares with the pinned set; FOVEA_TEST_WRITE=1 writes it instead."""
    if DEVICE != "cuda" or not _ran or session.exitstatus:
        return
    verdicts = {name: "refused" if name in _refused else "passes" for name in sorted(_ran)}
    if os.environ.get("FOVEA_TEST_WRITE"):
        lines = [
            f"{verdict}  {name}" + (f"  # {_refused[name]}" if name in _refused else "")
            for name, verdict in verdicts.items()
        ]
        PINNED.write_text(
            "# fovea.jax's tests on a GPU. Made by: FOVEA_TEST_DEVICE=cuda FOVEA_TEST_WRITE=1 pytest\n"
            + "\n".join(lines)
            + "\n"
        )
        return
    pinned = dict(
        reversed(line.split("  # ")[0].split("  ", 1))
        for line in PINNED.read_text().splitlines()
        if line[:1] != "#"
    )
    changed = [
        f"{name}: {verdict}, pinned {pinned.get(name)}"
        for name, verdict in verdicts.items()
        if pinned.get(name) != verdict
    ]
    if changed:
        print(
            "\nthe set that the GPU runs has changed (FOVEA_TEST_WRITE=1 pins it anew):", *changed, sep="\n  "
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def eight_devices():
    import jax

    if len(jax.devices()) < 8:
        pytest.skip(f"needs eight devices, there are {len(jax.devices())} (FOVEA_TEST_DEVICE={DEVICE})")
    return jax.devices()[:8]

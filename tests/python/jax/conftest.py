"""JAX on eight host devices, or on a GPU with FOVEA_TEST_DEVICE=cuda; a seed that is printed."""

import os
import pathlib
import sys

DEVICE = os.environ.get("FOVEA_TEST_DEVICE", "cpu")
if DEVICE == "cpu":
    # Eight devices, and programs compiled in a hurry: they are run once.
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    flags += " --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    os.environ["JAX_PLATFORMS"] = "cpu"
# The package of this tree: ./dev build makes it, and an installed one stands back.
ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = pathlib.Path(os.environ.get("FOVEA_TEST_PACKAGE", ROOT / "build" / "python"))
sys.path.insert(0, str(PACKAGE))
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import pytest  # noqa: E402


def pytest_report_header():
    return f"fovea.jax: device {DEVICE}, seed {seed()}, package {PACKAGE}"


def seed() -> int:
    return int(os.environ.get("FOVEA_TEST_SEED", "20261115"))


def pytest_collection_modifyitems(items):
    try:
        import jax  # noqa: F401
    except ImportError as error:
        for item in items:
            if pathlib.Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"JAX is not installed: {error}"))


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

"""What the tests of fovea.jax share: skips that are seen, eight devices, the set that a GPU runs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from jax_setup import DEVICE, package, seed  # noqa: E402  (before anything imports JAX)

import jax_pinned  # noqa: E402
import pytest  # noqa: E402


def pytest_report_header():
    return f"fovea.jax: device {DEVICE}, seed {seed()}, package {package()}"


try:
    import jax  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_jax_*.py"]  # test_present.py says so


# --- on a GPU each test passes, or an engine refuses it with reasons; which, is pinned (jax_pinned.py) ---


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if DEVICE != "cuda":
        return (yield)
    import jax

    import fovea

    try:
        result = yield
    except (fovea.Unsupported, jax.errors.JaxRuntimeError) as error:
        text = str(error)
        if not isinstance(error, fovea.Unsupported) and "UNIMPLEMENTED: fovea" not in text:
            raise
        assert ":" in text, f"a refusal without reasons: {text}"
        jax_pinned.seen(item, refusal=text)
        return None
    jax_pinned.seen(item)
    return result


def pytest_sessionfinish(session):
    if DEVICE != "cuda" or session.exitstatus:
        return  # failures are told by themselves
    changed = jax_pinned.write(session) if jax_pinned.writing() else jax_pinned.compare(session)
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

"""The wheel of ./dev wheel: it says where it runs, is installed into an environment of its own, and used there."""

import os
import re
import sys
import zipfile

import numpy


def test_the_wheel_is_built_installed_and_used(root, run, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(root / "dev", "wheel", tmp_path, env=environment)
    (wheel,) = tmp_path.glob("fovea-*.whl")
    # Enterprise Linux 9, Ubuntu 22.04 and Debian 12 have glibc 2.34 or newer.
    (minor,) = re.findall(r"-manylinux_2_(\d+)_", wheel.name)
    assert int(minor) <= 34, wheel.name
    inside = zipfile.ZipFile(wheel).namelist()
    assert "fovea/py.typed" in inside and "fovea/_core.pyi" in inside and "fovea/recorder/graph.py" in inside
    assert [name for name in inside if "libfovea" in name] == ["fovea/libfovea.so.0.1"]
    assert not [name for name in inside if "__pycache__" in name or name.startswith(("lib/", "include/", "bin/"))]

    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    run(
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "--python",
        python,
        "install",
        "--no-index",
        wheel,
    )
    # Away from the tree, without any variable that could lead back to it.
    code = "import fovea; print(fovea.__file__, fovea.__version__); fovea.doctor(); print(fovea.explain('sq=64').chosen)"
    out = run(python, "-I", "-c", code, cwd=tmp_path, env=environment).stdout
    assert out.startswith(site) and f"package       {site}/fovea/_core" in out and out.endswith("cpu\n")
    maps = ("import fovea; print([line.split()[-1] for line in open('/proc/self/maps') if 'libfovea' in line][0])")
    assert (
        run(python, "-I", "-c", maps, cwd=tmp_path, env=environment).stdout.strip()
        == f"{site}/fovea/libfovea.so.0.1"
    )

    command = run(tmp_path / "venv/bin/fovea", "explain", "sq=64", cwd=tmp_path, env=environment).stdout
    assert command == run(python, "-I", "-m", "fovea", "explain", "sq=64", env=environment).stdout
    assert "cpu" in command

    # NumPy from this environment: a wheel of it would have to be fetched.
    numpy_folder = os.path.dirname(os.path.dirname(numpy.__file__))
    code = "import numpy, fovea; x = numpy.ones((1, 2, 9, 8), 'f'); print(fovea.attention(x, x, x, is_causal=True).sum())"
    script = f"import sys; sys.path.append({numpy_folder!r}); {code}"
    assert run(python, "-I", "-c", script, cwd=tmp_path, env=environment).stdout.strip() == "144.0"

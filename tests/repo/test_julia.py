"""tools/julia.sh says in one line why there is no Julia, and the package agrees with the library on its version."""
import re
import shutil


def test_without_a_way_to_get_julia_it_says_so(root, run, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "readlink", "dirname", "uname", "cat"):
        (tools / name).symlink_to(shutil.which(name))
    environment = {"PATH": str(tools), "FOVEA_JULIA_DIR": str(tmp_path / "julia")}
    result = run(root / "tools/julia.sh", "-e", "1", check=False, env=environment)
    assert result.returncode == 77
    assert result.stdout == ""
    assert result.stderr == "no Julia: none is on the PATH, and this machine has no apt-get to fetch Debian's\n"


def test_the_package_has_the_version_of_the_library(root):
    header = (root / "include/fovea/fovea.h").read_text()
    library = [re.search(rf"FOVEA_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    project = (root / "bindings/julia/Fovea.jl/Project.toml").read_text()
    assert re.search(r'^version = "(.*)"', project, re.MULTILINE)[1] == ".".join(library)

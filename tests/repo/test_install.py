"""What `cmake --install` leaves is enough for a stranger: headers, library, program, CMake package."""
import re

import pytest


@pytest.fixture(scope="module")
def prefix(build, run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", build, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def outside(prefix, root, run, tmp_path_factory):
    """tests/outside, built against the installed package alone."""
    folder = tmp_path_factory.mktemp("outside")
    run("cmake", "-S", root / "tests/outside", "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder)
    return folder


@pytest.fixture(scope="module")
def version(root):
    header = (root / "include/fovea/fovea.h").read_text()
    return ".".join(re.findall(r"#define FOVEA_VERSION_\w+ (\d+)", header))


def test_every_public_header_is_installed(prefix, root):
    assert {p.name for p in (prefix / "include/fovea").iterdir()} == {
        p.name for p in (root / "include/fovea").iterdir()
    }


def test_the_stand_in_for_a_driver_lies_where_only_fovea_looks(prefix):
    found = [path.relative_to(prefix) for path in prefix.rglob("libcuda.so*")]
    assert [path.parts[-3:] for path in found] == [("fovea", "standin", "libcuda.so.1")]


def test_program_is_installed_and_runs(prefix, run):
    run(prefix / "bin/fovea", "--help")


def test_outside_project_finds_the_package(outside, run, version):
    assert run(outside / "outside").stdout == f"{version}\n"


def test_header_is_strict_c99(outside, run, version):
    assert run(outside / "outside_c99").stdout == f"{version} {version}\n"


def test_package_refuses_another_minor_version(prefix, run, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(Later LANGUAGES CXX)\nfind_package(Fovea 99.0 REQUIRED)\n"
    )
    result = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}", check=False)
    assert result.returncode != 0
    assert "99.0" in result.stderr


def test_installed_package_does_not_name_the_source_tree(prefix, root):
    for path in prefix.rglob("*.cmake"):
        assert str(root) not in path.read_text(), path

"""Small promises about the tree itself: links lead somewhere, lists are whole, what is generated is up to date, words are
spelled right, the code of the README runs, and the library exports its C interface alone."""

import importlib.util
import os
import platform
import re
import shutil
import sys

import pytest
import yaml


def tool(root, name):
    spec = importlib.util.spec_from_file_location(name, root / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents(root):
    return [root / "README.md", *sorted(p for p in root.glob("*.md") if p.name != "README.md"),
            *sorted((root / "docs").rglob("*.md"))]


def relative_links(text):
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    targets = re.findall(r"!?\[[^\]]*\]\(\s*<?([^)>\s]+)", text)
    targets += re.findall(r"^\[[^\]]+\]:\s*<?(\S+?)>?$", text, flags=re.MULTILINE)
    targets += re.findall(r'<(?:img|a)\b[^>]*?(?:src|href)="([^"]+)"', text)
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def anchors(text):
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_relative_link_leads_to_a_file_and_a_heading(root):
    dead = []
    for document in documents(root):
        for target in relative_links(document.read_text()):
            name, _, anchor = target.partition("#")
            file = document.parent / name if name else document
            if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
                dead.append(f"{document.relative_to(root)}: {target}")
    assert dead == []


def test_links_of_every_form_are_found():
    text = "[a](b.md) ![c](d.png \"t\") [e]\n\n[e]: f.md\n<img width=\"9\" src=\"g.png\">\n`[no](no.md)` [web](https://h) [i](#j)\n"
    assert relative_links(text) == ["b.md", "d.png", "#j", "f.md", "g.png"]
    assert anchors("# A b-c\n```\n# no\n```\n## T5's `x`: d, e\n") == {"a-b-c", "t5s-x-d-e"}


@pytest.mark.parametrize("folder", ["src", "cli"])
def test_source_lists_are_whole_and_sorted(root, folder):
    text = (root / folder / "CMakeLists.txt").read_text()
    lists = [re.findall(r"^  (\S+\.cpp)$", block, re.MULTILINE) for block in re.split(r"^\S", text, flags=re.MULTILINE)]
    for names in lists:
        assert names == sorted(names)
    # cmake/cudnn.cmake chooses between these.
    chosen = set(re.findall(r"engines/cudnn/\w+\.cpp", (root / "cmake/cudnn.cmake").read_text())) if folder == "src" else set()
    there = {str(path.relative_to(root / folder)) for path in (root / folder).rglob("*.cpp")}
    assert set(re.findall(r"[\w/]+\.cpp", text)) | chosen == there


def test_every_test_program_is_known_to_ctest(build, root, run):
    """A folder of tests that CMake does not know would be skipped in silence."""
    listed = run("ctest", "--test-dir", build, "-N").stdout
    for path in sorted((root / "tests").rglob("*_test.cpp")):
        assert f": {path.parent.name}." in listed, f"no test of {path.parent.name} is run"


def test_structs_of_julia_are_up_to_date(root):
    c_structs = tool(root, "c_structs")
    assert c_structs.julia() == c_structs.JULIA.read_text(), "run tools/c_structs.py"


def test_the_ptx_is_made_from_todays_sources(root):
    """Kernels of engine cudnn's own are kept as text."""
    text = (root / "src/engines/cudnn/packed_rows.cpp").read_text()
    assert tool(root, "make_ptx").digest() in text, "packed_rows.cu or .h has changed: run tools/make_ptx.py"


def test_hooks_of_pre_commit_fetch_nothing(root):
    (repository,) = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["id"]: hook["language"] for hook in repository["hooks"]} == dict.fromkeys(("format", "layers", "spelling"), "system")


def test_words_are_spelled_right(root, run):
    files = run("git", "ls-files", cwd=root).stdout.split()
    run(sys.executable, "-m", "codespell_lib", *files, cwd=root)


@pytest.mark.parametrize("language, suffix", [("cpp", "cpp"), ("python", "py"), ("julia", "jl")])
def test_code_of_the_readme_is_an_example(root, language, suffix):
    blocks = re.findall(rf"```{language}\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    examples = [path.read_text() for path in (root / "examples" / language).glob(f"*.{suffix}")]
    assert blocks, f"the README has no example in {language}"
    for block in blocks:
        assert block in examples, f"this block is no file of examples/{language}:\n" + block


def test_the_python_example_runs(root, build, run, tmp_path):
    package = build / "python"
    assert package.is_dir(), "the Python package is not built: ./dev test builds it"
    environment = dict(os.environ, PYTHONPATH=str(package))
    done = run(sys.executable, root / "examples/python/softcap_alibi.py", cwd=tmp_path, env=environment)
    assert (tmp_path / "window.png").read_bytes().startswith(b"\x89PNG")
    assert "cudnn" in done.stdout


def exported(run, library):
    lines = run("nm", "-D", "--defined-only", library).stdout.splitlines()
    return {line.split()[-1] for line in lines}


def test_every_declared_function_is_exported_and_nothing_else(build, root, run):
    headers = "".join(path.read_text() for path in sorted((root / "include/fovea").glob("*.h")))
    declared = set(re.findall(r"^FOVEA_API\b[^(;]*?\b(fovea_\w+)\(", headers, re.MULTILINE))
    assert declared
    assert declared == exported(run, build / "libfovea.so")


# --- tools/julia.sh says in one line why there is no Julia, and the package agrees with the library on its version ---


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


# --- The CPU kernels are compiled once per instruction set; what one file makes must not reach another. A weak symbol (an inline function, a template of the standard library) is merged by the linker with its namesakes everywhere: the copy it keeps may be the one with AVX-512 code, and then runs on a machine without ---


SOURCES = {"x86_64": ["avx2.cpp", "avx512.cpp", "avx512_bf16.cpp", "scalar.cpp"], "aarch64": ["neon.cpp", "scalar.cpp"]}
KERNELS = "src/engines/cpu/kernels"
WEAK = "WwVvu"
GLOBAL_DATA = "BDGRS"


def symbols(run, build, source):
    """(kind, name) of every symbol that the object of this source defines or wants."""
    found = build / "src/CMakeFiles/fovea_core.dir/engines/cpu/kernels" / f"{source}.o"
    assert found.exists(), f"{found} is not there: run ./dev build"
    lines = run("nm", "--demangle", found).stdout.splitlines()
    return [line[17:].split(" ", 1) for line in lines]


def test_every_instruction_set_is_looked_at(root):
    assert sorted(path.name for path in (root / KERNELS).glob("*.cpp")) == sorted(set().union(*SOURCES.values()))


@pytest.mark.parametrize("source", SOURCES[platform.machine()])
def test_a_kernel_object_gives_out_its_table_and_nothing_else(build, run, source):
    found = symbols(run, build, source)
    weak = [name for kind, name in found if kind in WEAK]
    assert weak == [], f"weak symbols in {source}: keep templates of the standard library out"
    given = [(kind, name) for kind, name in found if kind.isupper() and kind != "U"]
    assert len(given) == 1 and given[0][0] in GLOBAL_DATA, f"{source} gives out {given}, not one table"

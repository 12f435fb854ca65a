"""Small promises about the tree itself: links lead somewhere, source lists are whole and sorted."""
import re

import pytest


def documents(root):
    return [root / "README.md", *sorted(p for p in root.glob("*.md") if p.name != "README.md"),
            *sorted((root / "docs").rglob("*.md"))]


def relative_links(text):
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    targets = re.findall(r"!?\[[^\]]*\]\(\s*<?([^)>\s]+)", text)
    targets += re.findall(r"^\[[^\]]+\]:\s*<?(\S+?)>?$", text, flags=re.MULTILINE)
    targets += re.findall(r'<(?:img|a)\b[^>]*?(?:src|href)="([^"]+)"', text)
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:|#", target)]


def test_every_relative_link_leads_to_a_file(root):
    dead = []
    for document in documents(root):
        for target in relative_links(document.read_text()):
            if not (document.parent / target.split("#")[0]).exists():
                dead.append(f"{document.relative_to(root)}: {target}")
    assert dead == []


def test_links_of_every_form_are_found():
    text = "[a](b.md) ![c](d.png \"t\") [e]\n\n[e]: f.md\n<img width=\"9\" src=\"g.png\">\n`[no](no.md)` [web](https://h) [i](#j)\n"
    assert relative_links(text) == ["b.md", "d.png", "f.md", "g.png"]


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

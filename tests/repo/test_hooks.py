"""The hooks of pre-commit: they fetch nothing, and the words of the tree are spelled right."""
import sys

import yaml


def test_hooks_are_local_and_use_what_is_installed(root):
    (repository,) = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["id"]: hook["language"] for hook in repository["hooks"]} == dict.fromkeys(("format", "layers", "spelling"), "system")


def test_words_are_spelled_right(root, run):
    files = run("git", "ls-files", cwd=root).stdout.split()
    run(sys.executable, "-m", "codespell_lib", *files, cwd=root)

"""The code in the README is code that the tests build and run."""
import re


def test_cpp_blocks_are_examples(root):
    blocks = re.findall(r"```cpp\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    examples = [path.read_text() for path in (root / "examples" / "cpp").glob("*.cpp")]
    assert blocks, "the README has no C++ example"
    for block in blocks:
        assert block in examples, "this block is no file of examples/cpp:\n" + block

"""Julia's structs are those of the C headers."""
import sys


def test_structs_of_julia_are_up_to_date(root):
    sys.path.insert(0, str(root / "tools"))
    import c_structs

    assert c_structs.julia() == c_structs.JULIA.read_text(), "run tools/c_structs.py"

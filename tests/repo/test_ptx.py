"""The GPU code of engine cudnn's own is kept as text: it must be what its source says."""
import importlib.util


def test_the_ptx_is_made_from_todays_sources(root):
    spec = importlib.util.spec_from_file_location("make_ptx", root / "tools/make_ptx.py")
    make_ptx = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_ptx)
    text = (root / "src/engines/cudnn/packed_rows_ptx.cpp").read_text()
    assert make_ptx.digest() in text, "packed_rows.cu or .h has changed: run tools/make_ptx.py"

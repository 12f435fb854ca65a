"""`fovea cache`, and what the doctor says of the cache folder and of bundles."""

import json
import os
import struct

import pytest


LINE = "b=2 h=8 sq=1024 d=64 dtype=bf16 mask=causal"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def fovea_in(fovea, folder):
    """fovea_in(*words, FOVEA_...=...) with the cache folder of this test."""

    def run(*words, check=True, **settings):
        env = {**os.environ, "FOVEA_CACHE_DIR": str(folder), **{name: str(text) for name, text in settings.items()}}
        return fovea(*words, check=check, env=env)

    return run


def keep(folder, environment="cudnn 9.19.0 sm_90", line=LINE, blob=b"a plan" * 1000):
    name, data = stored_plan("cudnn", environment, line + "\nmore", blob)
    (folder / name).write_bytes(data)
    return folder / name


def test_the_path(fovea_in, folder, fovea):
    assert fovea_in("cache", "path").stdout == f"{folder}\n"
    env = {name: text for name, text in os.environ.items() if name != "FOVEA_CACHE_DIR"}
    assert fovea("cache", "path", env={**env, "XDG_CACHE_HOME": "/x"}).stdout == "/x/fovea\n"
    env.pop("XDG_CACHE_HOME", None)
    assert fovea("cache", "path", env={**env, "HOME": "/home/me"}).stdout == "/home/me/.cache/fovea\n"


def test_plans_are_listed(fovea_in, folder):
    keep(folder)
    old = keep(folder, environment="cudnn 9.18.0 sm_90")
    os.utime(old, (0, old.stat().st_mtime - 9000))  # far from a whole hour: clocks are set now and then
    text = fovea_in("cache").stdout
    assert text == fovea_in("cache", "list").stdout
    head, first, second, total = text.splitlines()
    assert head.split() == ["engine", "size", "used", "ago", "environment", "problem"]
    assert first.startswith("cudnn") and "9.19.0" in first and "6.0 KiB" in first and first.endswith(LINE)
    assert "2 h" in second and "9.18.0" in second
    assert total.startswith("2 plans, ") and total.endswith(f" of at most 1 GiB in {folder}")


def test_the_list_for_programs(fovea_in, folder):
    kept = keep(folder)
    found = json.loads(fovea_in("cache", "--json", FOVEA_CACHE_LIMIT="3M").stdout)
    assert found["folder"] == str(folder) and found["usable"] and found["limit"] == 3 << 20
    assert found["bytes"] == kept.stat().st_size
    (plan,) = found["plans"]
    assert (plan["engine"], plan["problem"], plan["damage"]) == ("cudnn", LINE, "")


def test_verify_finds_damage(fovea_in, folder):
    keep(folder)
    assert fovea_in("cache", "verify").stdout.endswith("; 0 damaged\n")
    bad = keep(folder, line="b=1")
    data = bytearray(bad.read_bytes())
    data[-1] ^= 1
    bad.write_bytes(data)
    result = fovea_in("cache", "verify", check=False)
    assert result.returncode == 1
    assert f"damaged: {bad.name} has a wrong sum" in result.stdout and "; 1 damaged" in result.stdout
    assert "fovea cache clear" in result.stderr


def test_clear_removes_plans_and_nothing_else(fovea_in, folder):
    keep(folder)
    (folder / "mine.txt").write_text("mine")
    assert fovea_in("cache", "clear").stdout.startswith("removed 1 plan, ")
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert fovea_in("cache").stdout.startswith("0 plans, 0 B of at most")


def test_without_a_folder(fovea_in):
    assert fovea_in("cache", FOVEA_CACHE_DIR="off").stdout.startswith("no plans are kept on disk")
    assert fovea_in("cache", "path", FOVEA_CACHE_DIR="off").stdout == "\n"
    assert fovea_in("cache", "clear", FOVEA_CACHE_DIR="off").stdout.startswith("removed 0 plans")
    assert "none: FOVEA_CACHE_DIR is off" in fovea_in("doctor", FOVEA_CACHE_DIR="off").stdout


def test_the_doctor_names_the_folder(fovea_in, folder, tmp_path):
    keep(folder)
    text = fovea_in("doctor").stdout
    assert f"cache folder  {folder}\n" in text and "1 plans, " in text and "usable\n" in text
    assert "is not there yet" in fovea_in("doctor", FOVEA_CACHE_DIR=tmp_path / "new").stdout
    folder.chmod(0o777)
    assert "not used: it may be written to by others (chmod go-w)" in fovea_in("doctor").stdout
    assert "not in use" in fovea_in("cache").stdout
    assert "FOVEA_CACHE_LIMIT=lots is no size" in fovea_in("doctor", FOVEA_CACHE_LIMIT="lots").stdout


def test_the_doctor_names_bundles(fovea_in, tmp_path):
    good, bad = tmp_path / "good.fovea", tmp_path / "bad.fovea"
    good.write_bytes(empty_bundle())
    bad.write_bytes(empty_bundle()[:-1])
    text = fovea_in("doctor", FOVEA_BUNDLE=f"{good}:{bad}:{tmp_path}/none").stdout
    assert f"bundles       {good}: no plans\n" in text
    assert f"not used: {bad}: is damaged: it has 63 bytes, not 64\n" in text
    assert f"not used: {tmp_path}/none: cannot be opened: No such file or directory\n" in text


# --- A file of the cache folder as docs/caching.md describes it, written without the library: pins the form ---


MASK = (1 << 64) - 1


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def combine(seed, value):
    return mix((seed * 0x9E3779B97F4A7C15 + value + 0x632BE59BD9B4E019) & MASK)


def checksum(data, seed=0):
    total = combine(seed, len(data))
    for at in range(0, len(data), 8):
        total = combine(total, int.from_bytes(data[at:at + 8], "little"))
    return total


def stored_plan(engine, environment, content, blob):
    """(name, bytes) of the file."""
    texts = [text.encode() for text in (engine, environment, content)]
    key = struct.pack("<3I", *map(len, texts)) + b"".join(texts)
    head = b"FOVEAPLN" + struct.pack("<IIQ", 1, len(key), len(blob))
    first = checksum(key, 1)
    name = f"{first:016x}{checksum(key, first):016x}.plan"
    return name, head + struct.pack("<Q", checksum(key + blob, checksum(head))) + key + blob


def empty_bundle():
    """A bundle without plans."""
    index = struct.pack("<I", 4) + b"test"
    head = b"FOVEABND" + struct.pack("<IIQQQQ", 1, 0, 56 + len(index), 56, 0, checksum(index))
    return head + struct.pack("<Q", checksum(head)) + index

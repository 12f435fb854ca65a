"""A file of the cache folder as docs/caching.md describes it, written without the library: pins the form."""
import struct

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

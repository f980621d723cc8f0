"""As much of MessagePack as docs/wire.md names: nil, booleans, integers, text, bytes, lists."""

import struct


def pack(value):
    """The bytes of a value."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return pack_number(value)
    if isinstance(value, str):
        data = value.encode()
        return header(len(data), 0xA0, 32, 0xD9) + data
    if isinstance(value, bytes):
        return header(len(value), 0, 0, 0xC4) + value
    return header(len(value), 0x90, 16, 0xDB) + b"".join(map(pack, value))


def pack_number(value):
    if 0 <= value < 128:
        return bytes([value])
    if value < 0:
        return b"\xd3" + struct.pack(">q", value)
    return b"\xcf" + struct.pack(">Q", value)


def header(size, small, below, code):
    """What stands before texts, bytes and lists: sizes of 8, 16 and 32 bits follow each other; lists have no 8."""
    if size < below:
        return bytes([small | size])
    if size < 256 and code != 0xDB:
        return bytes([code, size])
    if size < 65_536:
        return bytes([code + 1]) + struct.pack(">H", size)
    return bytes([code + 2]) + struct.pack(">I", size)


NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
SIZES = {
    0xC4: (bytes, ">B"), 0xC5: (bytes, ">H"), 0xC6: (bytes, ">I"),
    0xD9: (str, ">B"), 0xDA: (str, ">H"), 0xDB: (str, ">I"), 0xDC: (list, ">H"), 0xDD: (list, ">I"),
}  # fmt: skip
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data):
    """The value that these bytes are, and no more."""
    value, end = read(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes too many")
    return value


def read(data, at):
    code = data[at]
    at += 1
    if code < 0x80 or code >= 0xE0:
        return (code if code < 0x80 else code - 256), at
    if 0x90 <= code < 0xA0:
        return read_sized(list, code & 15, data, at)
    if 0xA0 <= code < 0xC0:
        return read_sized(str, code & 31, data, at)
    if code in CONSTANTS:
        return CONSTANTS[code], at
    kind, form = SIZES.get(code) or (int, NUMBERS[code])
    (number,) = struct.unpack_from(form, data, at)
    at += struct.calcsize(form)
    return (number, at) if kind is int else read_sized(kind, number, data, at)


def read_sized(kind, size, data, at):
    if kind is list:
        found = []
        for _ in range(size):
            value, at = read(data, at)
            found.append(value)
        return found, at
    part = bytes(data[at : at + size])
    return (part.decode() if kind is str else part), at + size

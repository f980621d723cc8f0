"""The file of a queue: made whole or not at all, and validated by whoever attaches."""

from __future__ import annotations

import errno
import os
import struct
import sys

import pytest
from shm_files import left_over

from statemachines.cursor_recovery.layout import HEADER_WORDS, WORD, Layout
from statemachines.cursor_recovery.memory import Queue
from statemachines.drivers import cursor_recovery
from statemachines.drivers.cursor_recovery import segment as segment_module
from statemachines.drivers.cursor_recovery.segment import attach_segment, create_segment, path_of
from statemachines.drivers.cursor_recovery.word import atomic_memory
from statemachines.kernel import ConfigurationError

QUEUE = Queue(capacity=128)


@pytest.fixture
def path(name):
    path = path_of(name)
    create_segment(path, QUEUE)
    return path


def change(path, offset, raw):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(raw)


def refused(path, what):
    """The error names the file, what was found and what was expected."""
    with pytest.raises(cursor_recovery.DamagedQueue, match=what) as caught:
        attach_segment(path)
    assert caught.value.path == path
    assert caught.value.found in str(caught.value)
    assert caught.value.expected in str(caught.value)
    assert caught.value.remedy


def test_words_that_are_none_have_no_place():
    layout = Layout(QUEUE)
    for address in ("read/2/state", "data/128", "data/-4", "incarnation/256", "lock/0", "nonsense", "read/0/nonsense"):
        with pytest.raises((KeyError, ValueError)):
            layout.offset_of(address)
    for position, size in ((0, 132), (2, 4)):
        with pytest.raises(ValueError, match="not in a data area"):
            layout.parts(position, size)


def test_a_second_creator_is_told(path):
    with pytest.raises(cursor_recovery.ExistingQueue, match="attach to it"):
        create_segment(path, QUEUE)


def test_who_is_slower_by_a_moment_is_told_as_well(path, monkeypatch):
    monkeypatch.setattr(segment_module.Path, "exists", lambda self: False)
    with pytest.raises(cursor_recovery.ExistingQueue):
        create_segment(path, QUEUE)


@pytest.mark.parametrize("nameless", [True, False])
def test_a_creator_that_fails_leaves_nothing(name, monkeypatch, nameless):
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE")

    def full(fd, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(cursor_recovery.NoRoomForQueue, match="No space left"):
        create_segment(path_of(name), QUEUE)
    assert left_over(name) == []


def test_without_nameless_files_a_segment_is_made_as_well(name, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE")
    create_segment(path_of(name), QUEUE)
    attach_segment(path_of(name)).close()
    assert left_over(name) == [path_of(name).name]


def test_something_else_of_that_name_is_refused(name, tmp_path):
    path_of(name, tmp_path).mkdir()
    with pytest.raises(cursor_recovery.SegmentError, match="directory"):
        attach_segment(path_of(name, tmp_path))
    fifo = path_of(f"{name}.fifo", tmp_path)
    os.mkfifo(fifo)
    refused(fifo, "no regular file")


def test_what_is_shorter_than_a_header_is_refused(path):
    os.truncate(path, 100)
    refused(path, "100 bytes")


@pytest.mark.parametrize("by", [-1, 1, 4096])
def test_a_segment_of_another_length_is_refused(path, by):
    size = path.stat().st_size
    os.truncate(path, size + by)
    refused(path, f"{size + by} bytes.*{size} bytes")


def test_a_segment_half_made_is_recognised(path):
    change(path, 0, bytes(8))
    refused(path, "half made")


def test_another_file_is_recognised(path):
    change(path, 0, b"ELF.....")
    refused(path, "no queue")


def test_another_version_is_named(path):
    change(path, WORD, struct.pack("<Q", 2))
    refused(path, "version 2.*version 1")


@pytest.mark.parametrize("word", range(2, 10))
def test_a_header_that_was_written_over_is_refused(path, word):
    raw = path.read_bytes()[word * WORD]
    change(path, word * WORD, bytes([raw ^ 1]))
    refused(path, "checksum|bytes")


def test_a_header_with_the_right_checksum_of_an_impossible_shape_is_refused(path):
    for word, value in ((5, 127), (6, 0), (7, 1 << 20), (3, 4096)):
        path.write_bytes(path.read_bytes())
        raw = bytearray(path.read_bytes())
        raw[word * WORD : (word + 1) * WORD] = struct.pack("<Q", value)
        header = bytes(raw[: HEADER_WORDS * WORD])
        raw[2 * WORD : 3 * WORD] = struct.pack("<Q", segment_module._crc_of(header))
        other = path.with_name(f"{path.name}-{word}")
        other.write_bytes(bytes(raw[:4096] if word == 3 else raw).ljust(4096 if word == 3 else 0, b"\0"))
        try:
            refused(other, "shape|segment of")
        finally:
            other.unlink()


@pytest.mark.parametrize("side", ["guard_before", "guard_after"])
def test_a_broken_guard_is_refused(path, side):
    change(path, getattr(Layout(QUEUE), side) + 5, b"!")
    refused(path, "guard")


@pytest.mark.parametrize("bad", ["", "../etc", "a/b", ".hidden", "x" * 101, "ä"])
def test_a_name_that_is_none_is_refused(bad):
    with pytest.raises(ConfigurationError, match="name"):
        path_of(bad)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "atomicshm", None)
    with pytest.raises(ConfigurationError, match=r"gapless\[shm\]"):
        atomic_memory(bytearray(64))


def test_errors_come_whole_from_another_process(path):
    import pickle

    with pytest.raises(cursor_recovery.ExistingQueue) as caught:
        create_segment(path, QUEUE)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)

"""The file of a queue: made whole or not at all, and validated by whoever attaches.

Slots: a process is alive as long as the operating system keeps its lock; and incarnations that come round.

The log of what a process does at a queue: each step, each access before it is made; judged like any node's.

The logs of processes, fed to the machines of cursors and blocks: what is missing in one of them is noticed.
"""

import errno
import os
import struct
import sys

import pytest
from msgspec.structs import replace
from shm_files import left_over

from statemachines.cursor_recovery.layout import HEADER_WORDS, WORD, Layout
from statemachines.cursor_recovery.memory import FREE, INCARNATIONS, NONE, Queue, token
from statemachines.drivers import cursor_recovery
from statemachines.drivers.cursor_recovery import CircularQueue, Instruments, MissingQueue, TooManyProcesses
from statemachines.drivers.cursor_recovery import owner as owner_module
from statemachines.drivers.cursor_recovery import segment as segment_module
from statemachines.drivers.cursor_recovery.memory_access import MappedMemory
from statemachines.drivers.cursor_recovery.operation_log import OperationLog
from statemachines.drivers.cursor_recovery.owner import take_slot
from statemachines.drivers.cursor_recovery.segment import attach_segment, create_segment, path_of
from statemachines.drivers.cursor_recovery.word import atomic_memory
from statemachines.kernel import ConfigurationError
from statemachines.testing.cursor_recovery.crash_run import judge_accesses, run_seed
from statemachines.trace import COLUMNS
from statemachines.trace.log import read_logs
from statemachines.trace.parquet import TraceWriter

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


NOW = 10**12


@pytest.fixture
def segment(name):
    create_segment(path_of(name), Queue(capacity=128))
    segment = attach_segment(path_of(name))
    yield segment
    segment.close()


@pytest.fixture
def words(segment):
    return MappedMemory(segment)


def test_the_257th_is_refused_and_takes_part_when_one_has_gone(words):
    owners = [take_slot(words) for _ in range(256)]
    with pytest.raises(TooManyProcesses, match="at most 256"):
        take_slot(words)
    owners[99].give_up()
    assert take_slot(words).slot == 99
    for owner in (*owners[:99], *owners[100:]):
        owner.give_up()


def test_who_is_attached_to_a_removed_queue_takes_no_slot_of_the_new_one(words, name):
    path_of(name).unlink()
    with pytest.raises(MissingQueue, match="removed while"):
        take_slot(words)
    create_segment(path_of(name), Queue(capacity=128))
    with pytest.raises(MissingQueue, match="removed while"):
        take_slot(words)


def test_after_4096_lives_a_cursor_of_the_namesake_is_freed_first(words):
    """What life 5 left behind would look like life 4101's, which is alive."""
    words.incarnations[0].store(5 + INCARNATIONS - 1)
    for pool in ("read", "write"):
        words.states[pool][1].store(token(0, 5, NOW))
    words.states["read"][0].store(token(0, 6, NOW))
    words.positions["read"][1].store(40)
    words.messages[1].store(3)
    words.read_head.store(60)
    owner = take_slot(words)
    assert owner.incarnation == 5 + INCARNATIONS
    assert [word.load() for word in words.states["read"]] == [token(0, 6, NOW), FREE]
    assert words.states["write"][1].load() == FREE
    assert words.lost.load() == 3
    owner.give_up()


@pytest.mark.parametrize(("position", "head"), [(NONE, 60), (60, 60)])
def test_a_namesake_that_had_taken_nothing_lost_nothing(words, position, head):
    words.incarnations[0].store(4 + INCARNATIONS)
    words.states["read"][1].store(token(0, 5, NOW))
    words.positions["read"][1].store(position)
    words.messages[1].store(3)
    words.read_head.store(head)
    take_slot(words).give_up()
    assert words.states["read"][1].load() == FREE
    assert words.lost.load() == 0


def test_without_locks_a_queue_that_relies_on_them_is_refused(name, monkeypatch):
    monkeypatch.setattr(owner_module, "has_locks", lambda: False)
    with pytest.raises(ConfigurationError, match="only threshold_only=True works here"):
        CircularQueue.create(name)


def test_without_locks_a_slot_is_a_process_number(words, monkeypatch, child):
    monkeypatch.setattr(owner_module, "has_locks", lambda: False)
    first, second = take_slot(words), take_slot(words)
    assert (first.slot, second.slot) == (0, 1)
    pid = child(lambda: take_slot(words).slot)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    first.give_up()
    assert take_slot(words).slot == 0
    assert take_slot(words).slot == 2  # its process is dead
    for _ in range(253):
        take_slot(words)
    with pytest.raises(TooManyProcesses):
        take_slot(words)


def test_without_locks_a_queue_by_age_alone_works(name, monkeypatch):
    from statemachines.drivers.cursor_recovery import attachment

    for module in (owner_module, attachment):
        monkeypatch.setattr(module, "has_locks", lambda: False)
    with CircularQueue.create(name, threshold_only=True) as queue:
        queue.put(b"a")
        assert queue.get(timeout=1) == b"a"


def test_a_life_has_one_log(tmp_path):
    OperationLog(tmp_path, "writer", 2).close()
    with pytest.raises(ConfigurationError, match="number of its own"):
        OperationLog(tmp_path, "writer", 2)


def test_traces_of_crash_runs_are_judged_by_the_tables(tmp_path):
    from statemachines_reports.pipeline import analyze_all

    with TraceWriter(tmp_path / "trace", "crash") as trace:
        assert [run_seed(seed, trace) for seed in (3, 4)] == [[], []]
    (analysis,) = analyze_all([(tmp_path / "trace", tmp_path / "out")], spark=False)
    assert analysis.runs == 2
    checks = {check.name: check for check in analysis.checks}
    assert all(checks[name].verdict == "held" and checks[name].checked for name in ("rows", "continuity", "monitors"))


KEY, EVENT = COLUMNS.index("key") - 2, COLUMNS.index("event") - 2


@pytest.fixture
def logs(name, tmp_path):
    log = OperationLog(tmp_path, "shipper")
    with CircularQueue.create(name, capacity=128, instruments=Instruments(observe=log.observe)) as queue:
        for _ in range(3):
            queue.put(b"AAAA")
            assert queue.get() == b"AAAA"
    log.close()
    return queue._segment.queue, read_logs(tmp_path)


def test_what_was_done_rightly_is_fine(logs):
    assert judge_accesses(*logs) == []


@pytest.mark.parametrize(
    ("event", "key"),
    [
        ("store", "data/12"),
        ("store", "data/0"),
        ("copy_in", None),
        ("compare_and_swap", "write_head"),
        ("compare_and_swap", "read/0/state"),
        ("compare_and_swap", "write/0/state"),
    ],
)
def test_an_access_that_was_left_out_is_noticed(logs, event, key):
    queue, (log,) = logs
    place = next(n for n, row in enumerate(log.rows) if row[EVENT] == event and key in (None, row[KEY]))
    (found,) = judge_accesses(queue, [replace(log, rows=[*log.rows[:place], *log.rows[place + 2 :]])])
    assert "refuses" in found.text or "block" in found.text

"""A log in segments: each appears whole under its name, and all of them joined are the log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.trace import fault_row
from statemachines.trace.log import FORMAT, Head, TraceLog, find_unended, kill_row, read_log, read_logs
from statemachines.trace.log_segments import LogSegments, find_segments, list_logs, parse_name

HEAD = Head(FORMAT, "a", "a~1", 1, {"p": "f" * 16}, {})
EACH_ROW = LogSegments(1, 1e6)
"""A segment for each line."""


def rows_of(count):
    return [fault_row(number, "b", "pause") for number in range(count)]


def write(folder, count, segments=EACH_ROW, head=HEAD):
    with TraceLog(folder, head, segments) as log:
        for row in rows_of(count):
            log.write([row])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_segments_of_a_log_joined_are_the_log(tmp_path):
    write(tmp_path / "segments", 2)
    write(tmp_path / "one", 2, None)
    assert names(tmp_path / "segments") == [f"a~1@{number:06}.ndjson" for number in range(1, 5)]
    (paths,) = list_logs(tmp_path / "segments").values()
    assert b"".join(path.read_bytes() for path in paths) == (tmp_path / "one" / "a~1.ndjson").read_bytes()
    one, other = (read_logs(tmp_path / folder) for folder in ("segments", "one"))
    assert [msgspec.structs.replace(log, path="") for log in one] == [
        msgspec.structs.replace(log, path="") for log in other
    ]


def test_a_segment_is_open_until_it_has_its_size(tmp_path):
    with TraceLog(tmp_path, HEAD, LogSegments(10_000, 1e6)) as log:
        log.write(rows_of(1))
        assert names(tmp_path) == ["a~1@000001.ndjson.open"]
        log.write(rows_of(200))
        assert names(tmp_path) == ["a~1@000001.ndjson"]
    assert names(tmp_path) == ["a~1@000001.ndjson", "a~1@000002.ndjson"]
    (log,) = read_logs(tmp_path)
    assert len(log.rows) == 201


def test_a_node_that_says_nothing_more_closes_its_segment_by_its_age(tmp_path):
    with TraceLog(tmp_path, HEAD, LogSegments(2**20, 0.01)) as log:
        log.write(rows_of(1))
        while not (tmp_path / "a~1@000001.ndjson").exists():
            time.sleep(0.005)
        log.write(rows_of(1))
    (log,) = read_logs(tmp_path)
    assert len(log.rows) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from statemachines.trace import fault_row
from statemachines.trace.log import Head, TraceLog
from statemachines.trace.log_segments import LogSegments
log = TraceLog(Path(sys.argv[1]), Head(3, "a", "a~1", 1, {"p": "f" * 16}, {}), LogSegments(1000, 1e6))
for number in range(50):
    log.write([fault_row(number, "b", "pause")])
log._append(b'{"torn')
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_node_leaves_its_last_segment_open(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert names(tmp_path)[-1].endswith(".ndjson.open")
    (log,) = read_logs(tmp_path)
    assert (len(log.rows), log.torn, find_unended([log])) == (50, 1, ["a~1"])
    with TraceLog(tmp_path, Head(FORMAT, "nemesis", "nemesis~1", 2, {}, {})) as nemesis:
        nemesis.write([kill_row(60, "a", tmp_path)])
    assert find_unended(read_logs(tmp_path)) == []
    with TraceLog(tmp_path, Head(FORMAT, "a", "a~2", 3, {"p": "f" * 16}, {}), EACH_ROW):
        pass
    assert read_log(tmp_path / "a~2@000001.ndjson").head.earlier_bytes == {"a~1": log.size_bytes}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "a~1@000002.ndjson").unlink(), "comes after segment 1 of a~1"),
        (lambda folder: (folder / "a~1@000001.ndjson").unlink(), "comes after segment 0 of a~1"),
        (lambda folder: (folder / "a~1.ndjson").write_bytes(b"x"), "is there beside segments of the log of a~1"),
        (lambda folder: (folder / "a~1@000002.ndjson").rename(folder / "a~1@000002.ndjson.open"), "was not closed"),
        (lambda folder: (folder / "a~1@000002.ndjson").write_bytes(b'{"t'), "line 2 is cut, and more follow it"),
    ],
)
def test_segments_that_do_not_fit_are_refused_by_name(tmp_path, change, says):
    write(tmp_path, 3)
    change(tmp_path)
    with pytest.raises(ConfigurationError, match=says) as raised:
        read_logs(tmp_path)
    assert "a~1" in str(raised.value)


def test_a_life_has_one_log_whether_in_segments_or_not(tmp_path):
    write(tmp_path, 1)
    for segments in (None, EACH_ROW):
        with pytest.raises(ConfigurationError, match="every life of a node needs a number of its own"):
            TraceLog(tmp_path, HEAD, segments)


def test_a_child_of_a_fork_leaves_the_segment_to_its_parent(tmp_path):
    with TraceLog(tmp_path, HEAD, LogSegments(2**20, 1e6)) as log:
        child = os.fork()
        if not child:
            log.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert names(tmp_path) == ["a~1@000001.ndjson.open"]
        log.write(rows_of(1))
    (log,) = read_logs(tmp_path)
    assert log.is_ended


def test_a_segment_that_cannot_be_begun_is_an_error_of_its_own(tmp_path):
    log = TraceLog(tmp_path, HEAD, EACH_ROW)
    (tmp_path / "a~1@000002.ndjson.open").touch()
    with pytest.raises(GaplessError, match=r"a~1@000002\.ndjson\.open"):
        log.write(rows_of(1))
    log.close()
    assert names(tmp_path) == ["a~1@000001.ndjson", "a~1@000002.ndjson.open"]


def test_the_environment_says_how_long_segments_are():
    size, seconds = "GAPLESS_SEGMENT_BYTES", "GAPLESS_SEGMENT_SECONDS"
    assert find_segments({}) is None
    assert find_segments({size: "70"}) == LogSegments(70)
    assert find_segments({seconds: "0.5"}) == LogSegments(seconds=0.5)
    for wrong in ({size: "0"}, {size: "many"}, {seconds: "0"}, {seconds: "-1"}, {seconds: "nan"}):
        with pytest.raises(ConfigurationError, match="GAPLESS_SEGMENT"):
            find_segments(wrong)


def test_names_of_lives_with_bits_of_chance_stay_whole(tmp_path):
    path = tmp_path / "a~1.00000000000000ff@000012.ndjson.open"
    name = parse_name(path)
    assert (name.life, name.number, name.is_open, name.file_name) == ("a~1.00000000000000ff", 12, True, path.name)

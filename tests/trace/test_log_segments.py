"""A log in segments: each appears whole under its name, and all of them joined are the log."""

from __future__ import annotations

import pytest

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.trace import fault_row
from statemachines.trace.log import FORMAT, Head, TraceLog, read_logs
from statemachines.trace.log_segments import LogSegments, find_segments

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

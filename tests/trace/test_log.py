"""The log of a real node: nothing written is lost, and the logs of a run merge into one order.

A log in segments: each appears whole under its name, and all of them joined are the log.

The Informal Trace Format: what is written is read again, and what is no trace is refused in one line.

What fills the columns of a trace: an event says it, and what it says is held against its fields.

A disk that is full: whoever appends says which file, and nothing is half a line that somebody takes for whole.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import ClassVar
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from statemachines.cli import run
from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile
from statemachines.kernel import ConfigurationError, DeclarationError, GaplessError, Message, TraceColumns
from statemachines.kernel.event import column_fields
from statemachines.shared_subscriptions.message import PingResponse
from statemachines.trace import event_row, fault_row, itf
from statemachines.trace.log import FORMAT, Head, TraceLog, find_unlogged, kill_row, merge, read_log, read_logs
from statemachines.trace.log_segments import LogSegments, find_segments

HEAD = Head(FORMAT, "a", "a~1", 1, {"p": "f" * 16}, {})


def message(kind, t, node, msg):
    peer = "b~1" if node == "a" else "a~1"
    return event_row(t, node, f"{node}~1", kind, PingResponse("x", 1, 1, msg), peer=peer, msg=msg)


def log(tmp_path, node, number, rows, tables=None):
    written = TraceLog(
        tmp_path, Head(FORMAT, node, f"{node}~1", number, {"p": "f" * 16} if tables is None else tables, {})
    )
    written.write(rows)
    written.close()


def test_another_format_is_named(tmp_path):
    path = tmp_path / "x.ndjson"
    path.write_bytes(b'{"gapless_log":1,"node":"a","life":"a~1","number":1,"fingerprint":"f","versions":{}}\n')
    with pytest.raises(ConfigurationError, match="format 1; this version reads 3"):
        read_log(path)


def test_logs_of_two_versions_are_refused_with_both_fingerprints(tmp_path):
    log(tmp_path, "a", 1, [])
    log(tmp_path, "b", 2, [], tables={"p": "0" * 16})
    with pytest.raises(ConfigurationError, match=r"p of tables f{16} and of tables 0{16}"):
        read_logs(tmp_path)


def test_two_nodes_of_one_number_are_refused(tmp_path):
    log(tmp_path, "a", 1, [])
    log(tmp_path, "b", 1, [])
    with pytest.raises(ConfigurationError, match="a~1 and b~1"):
        read_logs(tmp_path)


def test_no_logs_at_all(tmp_path):
    with pytest.raises(ConfigurationError, match="holds no logs"):
        read_logs(tmp_path)


def test_clocks_that_contradict_each_other_do_not_stop_the_merge(tmp_path):
    log(tmp_path, "a", 1, [message("deliver", 10, "a", 2), message("send", 20, "a", 1)])
    log(tmp_path, "b", 2, [message("deliver", 10, "b", 1), message("send", 20, "b", 2)])
    assert len(list(merge(read_logs(tmp_path)))) == 4


# -- whether a log is whole --------------------------------------------------------------------------------------------


def begun(directory, life, run="", **stores):
    """The log of a life, with a number of its own."""
    number = 1 + crc32(life.encode()) % 2**20
    return TraceLog(directory, Head(FORMAT, life.partition("~")[0], life, number, {"p": "f" * 16}, {}, run, stores))


def without_end(log):
    """As a SIGKILL leaves it."""
    log.close()
    rows, _, _ = log.path.read_bytes().rpartition(b'{"end":')
    log.path.write_bytes(rows)
    return log.path


ROWS = [fault_row(1, "a", "pause"), fault_row(2, "a", "resume")]


@pytest.mark.parametrize("place", [3, -40, -3])
def test_D_470_a_byte_that_changed_after_a_log_was_closed_is_refused(tmp_path, place):
    """A time that is another is no step that a node took."""
    with begun(tmp_path, "a~1") as log:
        log.write(ROWS)
        log.name_store("p", "0a")
    read_log(log.path)
    whole = log.path.read_bytes()
    changed = whole.replace(b'"t_ns":2', b'"t_ns":3')
    log.path.write_bytes(changed)
    with pytest.raises(ConfigurationError, match=r"a~1\.ndjson.*has other bytes than when it was closed \(CRC-32\)"):
        read_log(log.path)
    log.path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place:][1:])
    with pytest.raises(ConfigurationError, match=r"a~1\.ndjson"):
        read_log(log.path)


# -- whose log is missing ----------------------------------------------------------------------------------------------


def unlogged(directory):
    return find_unlogged(read_logs(directory))


def test_D_213_a_node_that_something_was_done_to_is_missed(tmp_path):
    with begun(tmp_path, "nemesis~1") as nemesis:
        nemesis.write([fault_row(1, "a", "pause"), fault_row(1, "", "kill", peer="router")])
        without_end(begun(tmp_path, "b~1"))
        nemesis.write([kill_row(2, "b", tmp_path)])
    assert unlogged(tmp_path) == [("a", "")]
    (tmp_path / "b~1.ndjson").unlink()
    assert unlogged(tmp_path) == [("a", ""), ("b~1", "")]


# -- of which run ------------------------------------------------------------------------------------------------------


def test_D_471_a_later_life_that_began_in_another_folder_is_of_another_run_unless_something_says_otherwise(tmp_path):
    for folder, life in (("first", "a~1"), ("first", "b~1.0b"), ("second", "a~2"), ("third", "b~1.0c")):
        begun(tmp_path / folder, life).close()
    begun(tmp_path / "first", "b~1.0d").close()
    begun(tmp_path / "first", "a~3").close()
    read_logs(tmp_path / "first")
    for folder, life, earlier in (("second", "a~2", "a~1"), ("third", "b~1.0c", "b~1.0b")):
        path = tmp_path / "first" / f"{life}.ndjson"
        shutil.copy(tmp_path / folder / path.name, path)
        with pytest.raises(ConfigurationError, match=rf"{path.name}, which began where {earlier}.*name the run"):
            read_logs(tmp_path / "first")
        path.unlink()
    for names in ({"run": "monday"}, {"p": "0a"}):
        folder = tmp_path / "-".join(names)
        begun(folder, "a~1", **names).close()
        begun(folder / "later", "a~2", **names).close()
        shutil.copy(folder / "later" / "a~2.ndjson", folder)
        read_logs(folder)


def test_of_a_process_that_is_killed_while_it_begins_there_is_no_log_or_one_with_its_head(tmp_path, monkeypatch):
    """It was empty, and the judge refused the whole folder."""

    def end(file, path, data):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("statemachines.trace.log.append_whole", end)
        with pytest.raises(KeyboardInterrupt):
            TraceLog(tmp_path, HEAD)
    assert list(tmp_path.iterdir()) == []
    TraceLog(tmp_path, HEAD).close()
    assert [one.head.life for one in read_logs(tmp_path)] == [HEAD.life]
    assert [one.name for one in tmp_path.iterdir()] == [f"{HEAD.life}.ndjson"]


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


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3).map(Map)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(VALUES)
def test_a_value_is_the_same_once_it_was_written_and_read(value):
    encoded = itf.encode_itf(value)
    assert itf.make_canonical(json.loads(json.dumps(encoded))) == encoded


@pytest.mark.parametrize(
    ("read", "same"),
    [
        ({"#set": [{"#bigint": "2"}, {"#bigint": "1"}, 2]}, {"#set": [1, 2]}),
        ({"#map": [["b", 1], ["a", 2]]}, {"#map": [["a", 2], ["b", 1]]}),
        ({"#tup": [1, True]}, [1, True]),
        ({"tag": "Open", "value": {"#tup": []}}, "Open"),
        ({"tag": "Open", "value": {}}, "Open"),
        ({"#bigint": "-007"}, -7),
    ],
)
def test_equal_values_have_one_form(read, same):
    assert itf.make_canonical(read) == itf.make_canonical(same)


GOOD = {"vars": ["x"], "states": [{"x": 1}]}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("nonsense", "is not an ITF trace"),
        ("[]", 'it must be an object with "vars" and "states"'),
        ({"vars": ["x"]}, 'it must be an object with "vars" and "states"'),
        ({**GOOD, "vars": []}, '"vars" must be a list of names'),
        ({**GOOD, "vars": ["x", "x"]}, '"vars" must be different names, 1000 at most'),
        ({**GOOD, "states": []}, '"states" must be a list of 1 to 10000 states'),
        ({**GOOD, "states": [GOOD["states"][0]] * 10_001}, '"states" must be a list of 1 to 10000 states'),
        ({**GOOD, "states": [7]}, "state 0 must be an object"),
        ({**GOOD, "states": [{}]}, "state 0 gives no value to 'x'"),
        ({**GOOD, "states": [{"x": 1, "y": 2}]}, "state 0 has a variable 'y' that is not among the vars"),
        ({**GOOD, "states": [{"x": 1.5}]}, "state 0: 1.5 is no value of the format"),
        ({**GOOD, "states": [{"x": {"#bigint": "1e9"}}]}, "is no value of the format"),
        ({**GOOD, "states": [{"x": {"#what": 1}}]}, "is no value of the format"),
        ({**GOOD, "states": [{"x": {"#map": [[1, 2, 3]]}}]}, "is no value of the format"),
        ({**GOOD, "loop": 1}, '"loop" must be the number of a state, 0 to 0'),
        ({**GOOD, "loop": True}, '"loop" must be the number of a state'),
        ('{"vars": ["x"], "states": [{"x": ' + "[" * 66 + "]" * 66 + "}]}", "nested more than 64 deep"),
        ('{"vars": ["x"], "states": [{"x": ' + "[" * 100_000, "is not an ITF trace"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, capsys, content, wrong):
    path = tmp_path / "bad.itf.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigurationError) as raised:
        itf.read_itf(path)
    assert wrong in str(raised.value)
    assert run(["itf", str(path), "assignment"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line


class Halved(Message, frozen=True):
    """What it holds is not what a column can hold: properties are."""

    columns: ClassVar = TraceColumns(key="words", grant="pages", last="half")

    of: bytes
    twice: int

    @property
    def words(self) -> str:
        return self.of.decode()

    @property
    def half(self) -> int:
        return self.twice // 2

    @property
    def pages(self) -> int | None:
        return None

    @property
    def first(self) -> int:
        """Called as a column is, and not meant for it."""
        return 77


def test_a_property_of_another_type_is_refused():
    class Wrong(Halved, frozen=True):
        columns: ClassVar = TraceColumns(first="words")

    with pytest.raises(DeclarationError, match="first is filled from 'words', which is no int"):
        column_fields(Wrong)


FULL = Path("/dev/full")
"""Takes no byte, as a disk that is full."""


def test_a_consumer_whose_file_cannot_be_written_takes_nothing_for_noted():
    with pytest.raises(GaplessError, match="/dev/full: No space left on device"):
        ConsumerFile(FULL).got("s", 1, [(0, b"first")])


PUBLISH = """
import resource, sys
from statemachines import cli
from statemachines.drivers.shared_subscriptions import node_commands
node_commands.PATIENCE_S = 0.2
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
sys.exit(cli.run(sys.argv[1:]))
"""
"""A publisher whose files may not grow beyond so many bytes."""

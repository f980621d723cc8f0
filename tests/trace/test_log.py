"""The log of a real node: nothing written is lost, and the logs of a run merge into one order."""

from __future__ import annotations

import shutil
from zlib import crc32

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import PingResponse
from statemachines.trace import event_row, fault_row
from statemachines.trace.log import (
    FORMAT,
    Head,
    TraceLog,
    find_unlogged,
    kill_row,
    merge,
    read_log,
    read_logs,
)

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

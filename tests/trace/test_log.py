"""The log of a real node: nothing written is lost, and the logs of a run merge into one order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from zlib import crc32

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import PingResponse
from statemachines.trace import event_row, fault_row
from statemachines.trace.log import (
    FORMAT,
    Head,
    TraceLog,
    find_unended,
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


def test_what_is_written_is_read_back(tmp_path):
    rows = [message("send", 5, "a", 7), fault_row(6, "a", "kill")]
    log(tmp_path, "a", 1, rows)
    back = read_log(tmp_path / "a~1.ndjson")
    assert (back.rows, back.torn, back.head.node) == (rows, 0, "a")


def test_a_torn_last_line_is_dropped_and_counted(tmp_path):
    log(tmp_path, "a", 1, [message("send", 5, "a", 7), message("send", 6, "a", 8)])
    path = tmp_path / "a~1.ndjson"
    rows, _, _ = path.read_bytes().rpartition(b'{"end":')
    path.write_bytes(rows[:-10])
    back = read_log(path)
    assert (len(back.rows), back.torn) == (1, 1)


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path):
    log(tmp_path, "a", 1, [message("send", 5, "a", 7)])
    path = tmp_path / "a~1.ndjson"
    rows, _, _ = path.read_bytes().rpartition(b'{"end":')
    path.write_bytes(rows + b'{"t_ns": "x"}\n{}\n')
    with pytest.raises(ConfigurationError, match="line 3"):
        read_log(path)


@pytest.mark.parametrize("head", [b"", b"{}\n", b"hello\n", b'{"gapless_log":3}\n'])
def test_another_file_is_not_a_log(tmp_path, head):
    path = tmp_path / "x.ndjson"
    path.write_bytes(head)
    with pytest.raises(ConfigurationError, match="head line"):
        read_log(path)


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


def test_a_life_is_lived_once(tmp_path):
    TraceLog(tmp_path, HEAD).close()
    with pytest.raises(ConfigurationError, match="number of its own"):
        TraceLog(tmp_path, HEAD)


def test_where_no_directory_can_be_made_is_said(tmp_path):
    said = r"trace = .*/file/logs': cannot be a folder to write to: .*/file is no folder"
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=said):
        TraceLog(tmp_path / "file" / "logs", HEAD)


def test_merged_rows_keep_each_node_s_order_and_sends_come_first(tmp_path):
    # b's clock is behind: by time alone its deliver would come before the send.
    log(tmp_path, "a", 1, [message("send", 100, "a", 1), message("deliver", 130, "a", 2)])
    log(tmp_path, "b", 2, [message("deliver", 50, "b", 1), message("send", 60, "b", 2)])
    merged = list(merge(read_logs(tmp_path)))
    assert [(row[1], row[4], row[10]) for row in merged] == [
        ("a", "send", 1),
        ("b", "deliver", 1),
        ("b", "send", 2),
        ("a", "deliver", 2),
    ]


def test_clocks_that_contradict_each_other_do_not_stop_the_merge(tmp_path):
    log(tmp_path, "a", 1, [message("deliver", 10, "a", 2), message("send", 20, "a", 1)])
    log(tmp_path, "b", 2, [message("deliver", 10, "b", 1), message("send", 20, "b", 2)])
    assert len(list(merge(read_logs(tmp_path)))) == 4


PROGRAM = """
import sys
from pathlib import Path
from statemachines.trace import fault_row
from statemachines.trace.log import Head, TraceLog
log = TraceLog(Path(sys.argv[1]), Head(3, "a", "a~1", 1, {"p": "f"}, {}))
number = 0
while True:
    log.write([fault_row(number, "a", "tick"), fault_row(number, "a", "tock")])
    print(number, flush=True)
    number += 1
"""


def test_a_sigkill_loses_nothing_that_was_written(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    written = [int(child.stdout.readline()) for _ in range(300)][-1]
    os.kill(child.pid, signal.SIGKILL)
    written = max([written, *map(int, child.stdout.read().split("\n")[:-1])])
    child.stdout.close()
    child.wait()
    back = read_log(tmp_path / "a~1.ndjson")
    assert len(back.rows) >= 2 * (written + 1)
    assert [row[0] for row in back.rows[::2]] == list(range(len(back.rows[::2])))


# -- whether a log is whole --------------------------------------------------------------------------------------------


def begun(directory, life, run="", **stores):
    """The log of a life, with a number of its own."""
    number = 1 + crc32(life.encode()) % 2**20
    return TraceLog(directory, Head(FORMAT, life.partition("~")[0], life, number, {"p": "f" * 16}, {}, run, stores))


def unended(directory):
    return find_unended(read_logs(directory))


def without_end(log):
    """As a SIGKILL leaves it."""
    log.close()
    rows, _, _ = log.path.read_bytes().rpartition(b'{"end":')
    log.path.write_bytes(rows)
    return log.path


def a_row_short(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))


ROWS = [fault_row(1, "a", "pause"), fault_row(2, "a", "resume")]


def test_D_212_a_log_that_is_closed_is_whole_and_one_that_is_cut_at_the_end_of_a_line_is_not(tmp_path):
    with begun(tmp_path, "a~1") as log:
        log.write(ROWS)
    assert unended(tmp_path) == []
    a_row_short(log.path)
    assert unended(tmp_path) == ["a~1"]


def test_D_212_the_next_life_of_a_node_tells_a_log_that_is_whole_from_one_that_was_cut(tmp_path):
    log = begun(tmp_path, "a~1.00ff")
    log.write(ROWS)
    without_end(log)
    assert unended(tmp_path) == ["a~1.00ff"]
    begun(tmp_path, "a~3").close()
    begun(tmp_path, "b~2").close()
    assert unended(tmp_path) == []
    a_row_short(log.path)
    assert unended(tmp_path) == ["a~1.00ff"]


def test_D_212_a_life_that_went_on_when_the_next_had_begun_may_have_been_cut_afterwards(tmp_path):
    """Nobody says how long the log was when it was dead."""
    with begun(tmp_path, "a~1") as log:
        log.write(ROWS)
        begun(tmp_path, "a~2").close()
        log.write(ROWS)
    assert unended(tmp_path) == []
    a_row_short(log.path)
    assert unended(tmp_path) == ["a~1"]


def test_D_212_the_row_of_a_kill_tells_a_log_that_is_whole_from_one_that_was_cut(tmp_path):
    log = begun(tmp_path, "a~1")
    log.write(ROWS)
    without_end(log)
    with begun(tmp_path, "nemesis~1") as nemesis:
        nemesis.write([kill_row(3, "a", tmp_path)])
    assert unended(tmp_path) == []
    a_row_short(log.path)
    assert unended(tmp_path) == ["a~1"]


def test_a_kill_that_does_not_say_how_long_the_log_was_proves_nothing(tmp_path):
    without_end(begun(tmp_path, "a~1"))
    with begun(tmp_path, "nemesis~1") as nemesis:
        nemesis.write([fault_row(3, "a", "kill"), fault_row(4, "a", "kill", data='{"log_bytes": []}')])
    assert unended(tmp_path) == ["a~1"]


FORGETFUL = """
import sys
from pathlib import Path
from statemachines.trace.log import Head, TraceLog
log = TraceLog(Path(sys.argv[1]), Head(3, "a", "a~1", 1, {"p": "f"}, {}))
raise SystemExit("the address is in use")
"""


def test_D_212_a_process_that_ends_by_itself_ends_its_log(tmp_path):
    done = subprocess.run([sys.executable, "-c", FORGETFUL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "the address is in use\n")
    assert unended(tmp_path) == []


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


def test_a_forked_child_ends_no_log_of_its_parent(tmp_path):
    with begun(tmp_path, "a~1") as log:
        log.write(ROWS[:1])
        if (child := os.fork()) == 0:
            log.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        log.write(ROWS[1:])
    assert read_log(log.path).rows == ROWS


# -- whose log is missing ----------------------------------------------------------------------------------------------


def unlogged(directory):
    return find_unlogged(read_logs(directory))


def test_D_213_a_node_that_somebody_sent_something_to_is_missed_though_it_said_nothing(tmp_path):
    with begun(tmp_path, "a~1") as log:
        log.write([message("send", 1, "a", 7)])
    assert unlogged(tmp_path) == [("b~1", "ping_response")]
    begun(tmp_path, "b~1").close()
    assert unlogged(tmp_path) == []


def test_a_node_that_is_addressed_by_where_it_listens_is_not_known_and_not_missed(tmp_path):
    with begun(tmp_path, "a~1") as log:
        row = list(message("send", 1, "a", 7))
        row[row.index("b~1")] = "peer:1"
        log.write([tuple(row)])
    assert unlogged(tmp_path) == []


def test_D_213_a_node_that_something_was_done_to_is_missed(tmp_path):
    with begun(tmp_path, "nemesis~1") as nemesis:
        nemesis.write([fault_row(1, "a", "pause"), fault_row(1, "", "kill", peer="router")])
        without_end(begun(tmp_path, "b~1"))
        nemesis.write([kill_row(2, "b", tmp_path)])
    assert unlogged(tmp_path) == [("a", "")]
    (tmp_path / "b~1.ndjson").unlink()
    assert unlogged(tmp_path) == [("a", ""), ("b~1", "")]


def test_D_213_the_life_before_one_that_has_a_log_is_missed(tmp_path):
    log = begun(tmp_path, "a~1")
    log.close()
    begun(tmp_path, "a~2").close()
    assert unlogged(tmp_path) == []
    log.path.unlink()
    assert unlogged(tmp_path) == [("a~1", "")]


def test_a_life_of_another_run_in_the_folder_is_not_the_one_before(tmp_path):
    """Whoever gives each run a folder of its own afterwards misses nothing."""
    begun(tmp_path, "a~1", p="first").close()
    begun(tmp_path, "b~1", run="monday").close()
    begun(tmp_path, "a~2", p="second").close()
    begun(tmp_path, "b~2", run="tuesday").close()
    for life in ("a~1", "b~1"):
        (tmp_path / f"{life}.ndjson").unlink()
    assert unlogged(tmp_path) == []


# -- of which run ------------------------------------------------------------------------------------------------------


def test_D_211_logs_of_two_stores_of_a_protocol_are_of_two_runs_and_those_of_two_protocols_are_not(tmp_path):
    begun(tmp_path, "a~1", p="0a").close()
    begun(tmp_path, "b~1", q="0b").close()
    begun(tmp_path, "c~1").close()
    with begun(tmp_path, "d~1") as log:
        log.name_store("p", "0a")
    read_logs(tmp_path)
    with begun(tmp_path, "e~1") as log:
        log.name_store("p", "0e")
    said = "store 0a of p in a~1.ndjson, d~1.ndjson; store 0e of p in e~1.ndjson: give each a folder of its own"
    with pytest.raises(ConfigurationError, match=f"2 runs in one folder are not judged as one: {said}"):
        read_logs(tmp_path)


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


def test_D_211_a_run_that_the_user_names_may_work_on_several_stores_and_two_names_are_two_runs(tmp_path):
    begun(tmp_path, "a~1", run="monday", p="0a").close()
    begun(tmp_path, "b~1", run="monday", p="0b").close()
    begun(tmp_path, "c~1", p="0b").close()
    read_logs(tmp_path)
    begun(tmp_path, "d~1", run="tuesday", p="0a").close()
    with pytest.raises(ConfigurationError, match=r"run monday in a~1.ndjson, b~1.ndjson; run tuesday in d~1.ndjson"):
        read_logs(tmp_path)


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

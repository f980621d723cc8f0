"""The log of a real node: nothing written is lost, and the logs of a run merge into one order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import PingResponse
from statemachines.trace import event_row, fault_row
from statemachines.trace.log import Head, TraceLog, merge, read_log, read_logs

HEAD = Head(2, "a", "a~1", 1, {"p": "f" * 16}, {})


def message(kind, t, node, msg):
    peer = "b~1" if node == "a" else "a~1"
    return event_row(t, node, f"{node}~1", kind, PingResponse("x", 1, 1, msg), peer=peer, msg=msg)


def log(tmp_path, node, number, rows, tables=None):
    written = TraceLog(tmp_path, Head(2, node, f"{node}~1", number, {"p": "f" * 16} if tables is None else tables, {}))
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
    path.write_bytes(path.read_bytes()[:-10])
    back = read_log(path)
    assert (len(back.rows), back.torn) == (1, 1)


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path):
    log(tmp_path, "a", 1, [message("send", 5, "a", 7)])
    path = tmp_path / "a~1.ndjson"
    path.write_bytes(path.read_bytes() + b'{"t_ns": "x"}\n{}\n')
    with pytest.raises(ConfigurationError, match="line 3"):
        read_log(path)


@pytest.mark.parametrize("head", [b"", b"{}\n", b"hello\n", b'{"gapless_log":2}\n'])
def test_another_file_is_not_a_log(tmp_path, head):
    path = tmp_path / "x.ndjson"
    path.write_bytes(head)
    with pytest.raises(ConfigurationError, match="head line"):
        read_log(path)


def test_another_format_is_named(tmp_path):
    path = tmp_path / "x.ndjson"
    path.write_bytes(b'{"gapless_log":1,"node":"a","life":"a~1","number":1,"fingerprint":"f","versions":{}}\n')
    with pytest.raises(ConfigurationError, match="format 1; this version reads 2"):
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
log = TraceLog(Path(sys.argv[1]), Head(2, "a", "a~1", 1, {"p": "f"}, {}))
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

"""The demo of the queue: its account of own files, what it calls wrong, and a short run with real SIGKILLs."""

from __future__ import annotations

import pytest

from statemachines.demo.cursor_recovery import lines as lines_module
from statemachines.demo.cursor_recovery import real
from statemachines.demo.cursor_recovery.account import QueueAccount, account_for
from statemachines.demo.cursor_recovery.lines import read_lines
from statemachines.demo.cursor_recovery.real import wrong_in
from statemachines.kernel import ConfigurationError
from statemachines.trace.log import find_unended, find_unlogged, read_logs


def files(folder, told, shipped):
    (folder / "lines-0").write_bytes(b"one\ntwo\nthree\nfour\nfive")
    (folder / "told-0").write_text(told)
    for life, lines in enumerate(shipped, 1):
        (folder / f"shipped-0~{life}").write_bytes(b"".join(line + b"\n" for line in lines))


WHOLE = "b 0 3\na 0 3\nb 3 5\na 3 5\n"
LINES = [b"0 0 one", b"0 1 two", b"0 2 three", b"0 3 four", b"0 4 five"]


def test_what_was_acknowledged_and_shipped_is_accounted_for(tmp_path):
    files(tmp_path, WHOLE, [LINES[:3], LINES[3:]])
    assert account_for(tmp_path) == QueueAccount(5, 5, 0, 0, 0, 0)


def test_what_is_missing_lay_in_blocks(tmp_path):
    files(tmp_path, WHOLE, [LINES[1:2]])
    assert account_for(tmp_path) == QueueAccount(5, 1, 0, 4, 2, 0)


def test_what_was_begun_may_come_and_is_not_missed(tmp_path):
    files(tmp_path, "b 0 3\na 0 3\nb 3 5\n", [LINES[:4]])
    assert account_for(tmp_path) == QueueAccount(3, 4, 0, 0, 0, 0)


def test_what_comes_twice_or_torn_is_counted(tmp_path):
    files(tmp_path, WHOLE, [LINES, [LINES[0], b"0 4 fi"]])
    assert account_for(tmp_path) == QueueAccount(5, 7, 1, 0, 0, 1)


@pytest.mark.parametrize(
    ("account", "words"),
    [
        (QueueAccount(5, 5, 0, 0, 0, 0), []),
        (QueueAccount(5, 2, 0, 3, 1, 0), []),
        (QueueAccount(5, 2, 0, 3, 2, 0), ["2 blocks never came; shippers killed: 1"]),
        (QueueAccount(5, 6, 1, 0, 0, 0), ["1 lines came twice"]),
        (QueueAccount(5, 6, 0, 0, 0, 1), ["1 lines came that nobody wrote"]),
    ],
)
def test_what_does_not_hold_is_said(account, words):
    wrong = wrong_in(account, {"shipper-0": 1, "writer-0": 3})
    assert len(wrong) == len(words)
    assert all(word in one for word, one in zip(words, wrong, strict=True))


def test_an_input_without_lines_is_named(tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(ConfigurationError, match="has no line"):
        read_lines(tmp_path)
    with pytest.raises(ConfigurationError, match="is no file and no folder"):
        read_lines(tmp_path / "nothing.txt")
    (tmp_path / "some.txt").write_text("a\nb\n" + "x" * 500)
    lines = read_lines(tmp_path)
    assert len(lines) == real.LINES
    assert lines[:4] == [b"a", b"b", b"x" * 200, b"a"]


@pytest.mark.long
def test_a_short_run_with_real_kills_loses_nothing_but_what_a_killed_shipper_had(tmp_path, monkeypatch):
    for module in (real, lines_module):
        monkeypatch.setattr(module, "LINES", 180)
    monkeypatch.setattr(real, "KILLS", ("writer-0", "shipper-0"))
    said = []
    came = real.run(tmp_path / "real", None, said.append, lambda done, of: None)
    assert came.wrong == []
    assert came.killed.get("shipper-0") == 1
    assert came.account.acknowledged >= 180 - 3
    assert came.account.twice == came.account.foreign == 0
    logs = read_logs(tmp_path / "real" / "trace")
    assert (find_unended(logs), find_unlogged(logs)) == ([], [])
    assert {"nemesis~1", "shipper-0~2", "shipper-1~1"} <= {log.head.life for log in logs}
    assert any("SIGKILL to shipper-0" in line for line in said)

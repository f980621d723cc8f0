"""The demo of losses: its account of receivers' own files, what it calls wrong, and a short run over real multicast."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from statemachines.demo.sequence_windows import lines as lines_module
from statemachines.demo.sequence_windows import real
from statemachines.demo.sequence_windows.account import ForwardedMessage, WindowAccount, account_for, wrong_in
from statemachines.demo.sequence_windows.lines import read_lines
from statemachines.demo.sequence_windows.play import real_lines, too_tame
from statemachines.drivers.sequence_windows.loss_source import read_losses
from statemachines.kernel import ConfigurationError
from statemachines.trace.log import find_unended, find_unlogged, read_logs

PASSED = [
    ForwardedMessage("p~1", "a", 1),
    ForwardedMessage("p~1", "b", 0),
    ForwardedMessage("p~1", "c", 2),
    ForwardedMessage("q~1", "d", 1),
]
WHOLE = WindowAccount("receiver-1", 1, 1, 0, 1, -1, 3, 0, 0, 0, ())


def came(publisher, payload, **more):
    return {"from": publisher, "payload": payload, "verdict": "next", **more}


LINES = [{"joined": "here"}, came("p~1", "a"), came("p~1", "c", lost=1), {"advisory": {"lost": 1}}, came("q~1", "d")]


def account(tmp_path, lines, shown=-1):
    path = tmp_path / "receiver-1.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return account_for(path, PASSED, shown)


def test_what_a_receiver_told_is_compared_with_what_was_dropped(tmp_path):
    assert account(tmp_path, LINES) == WHOLE
    assert wrong_in([WHOLE]) == []


@pytest.mark.parametrize(
    ("lines", "shown", "changed", "words"),
    [
        (LINES[:2] + LINES[3:], -1, {"told": 0, "came": 2, "missing": 1, "wrong": ("p~1",)},
         ["another number of p~1", "advised of 1, told 0", "1 messages did not come"]),
        ([*LINES, LINES[1]], -1, {"came": 4, "twice": 1}, ["1 messages came twice"]),
        ([*LINES, came("p~1", "x")], -1, {"came": 4, "foreign": 1}, ["1 messages nobody sent"]),
        ([*LINES, came("q~1", "d", lost=1)], -1, {"told": 2, "came": 4, "twice": 1, "wrong": ("q~1",)},
         ["another number of q~1", "advised of 1, told 2", "came twice"]),
        ([*LINES[:2], came("p~1", "c", lost="unknown"), *LINES[3:]], -1, {"unknown": 1}, ["1 losses of unknown size"]),
        (LINES, 2, {"shown": 2}, ["show-loss says 2, told 1"]),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_said(tmp_path, lines, shown, changed, words):
    one = account(tmp_path, lines, shown)
    assert one == replace(WHOLE, **changed)
    wrong = wrong_in([one])
    assert len(wrong) == len(words)
    assert all(word in said for word, said in zip(words, wrong, strict=True))
    verdicts = real_lines(real.WindowRun([one], 4, 1, 0, 1.0, wrong))
    assert not all(one.held for one in verdicts)


def test_an_input_without_lines_is_named(tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(ConfigurationError, match="has no line"):
        read_lines(tmp_path)
    with pytest.raises(ConfigurationError, match="is no file and no folder"):
        read_lines(tmp_path / "nothing.txt")
    (tmp_path / "some.txt").write_text("a\nb\n" + "x" * 500)
    lines = read_lines(tmp_path)
    assert len(lines) == len(set(lines)) == lines_module.LINES
    assert lines[:4] == [b"0 a", b"1 b", b"2 " + b"x" * 120, b"3 a"]


def test_a_simulated_run_that_loses_nothing_is_too_tame():
    assert too_tame(SimpleNamespace(tally={"delivered": 2_000, "lost": 0}))
    assert too_tame(SimpleNamespace(tally={"delivered": 999, "lost": 1}))
    assert too_tame(SimpleNamespace(tally={"delivered": 1_000, "lost": 1})) == ""


@pytest.mark.long
def test_a_short_run_over_multicast_tells_what_was_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(lines_module, "LINES", 60)
    said = []
    done = real.run(tmp_path / "real", None, said.append, lambda done, of: None)
    assert done.wrong == []
    assert (done.sent, done.killed, len(done.accounts)) == (60 + 3 + 2, 1, 2)
    assert done.repeated > 0
    for one in done.accounts:
        assert one.told == one.dropped == one.shown == one.advised > 3
        assert one.came == done.sent - one.dropped
    assert all(line.held for line in real_lines(done))
    written = read_logs(tmp_path / "real" / "trace")
    assert (find_unended(written), find_unlogged(written)) == ([], [])
    logs = {log.head.life: log.rows for log in written}
    assert {"publisher-1~1", "publisher-1~2", "receiver-2~1", "forwarder~1"} <= logs.keys()
    kinds = [row[4] for row in logs["forwarder~1"]]
    assert kinds.count("drop") == done.accounts[0].dropped
    assert kinds.count("duplicate") == done.repeated
    assert read_losses(tmp_path / "real" / "trace").lost_messages == sum(one.told for one in done.accounts)
    assert any("SIGKILL to publisher-1" in line for line in said)

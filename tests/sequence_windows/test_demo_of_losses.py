"""The demo of losses: its account of receivers' own files, what it calls wrong, and a short run over real multicast."""

import json

import pytest

from statemachines.demo.protocol import DemoStage, sum_accounts
from statemachines.demo.sequence_windows import DEMO, real
from statemachines.demo.sequence_windows.forwarder import ForwardedMessage
from statemachines.demo.show import DemoResult, judge_step
from statemachines.drivers.sequence_windows.loss_report import read_losses
from statemachines.trace.log import find_unended, find_unlogged, read_logs

PASSED = [
    ForwardedMessage("p~1", "a", 1),
    ForwardedMessage("p~1", "b", 0),
    ForwardedMessage("p~1", "c", 2),
    ForwardedMessage("q~1", "d", 1),
]
WHOLE = {"receiver": "receiver-1", "dropped": 1, "told": 1, "unknown": 0, "advised": 1, "unadvised": 0, "shown": -1,
         "unshown": 0, "came": 3, "missing": 0, "twice": 0, "foreign": 0, "misjudged": ""}  # fmt: skip


def came(publisher, payload, **more):
    return {"from": publisher, "payload": payload, "verdict": "next", **more}


LINES = [{"joined": "here"}, came("p~1", "a"), came("p~1", "c", lost=1), {"advisory": {"lost": 1}}, came("q~1", "d")]


def account(tmp_path, lines, shown=-1):
    path = tmp_path / "receiver-1.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return real.account_for(path, PASSED, shown)


def judge(figures):
    came = DemoResult("sequence_windows")
    judge_step(DEMO.steps[0], figures, came)
    return came


@pytest.mark.parametrize(
    ("lines", "shown", "changed", "words"),
    [
        (LINES, -1, {}, []),
        (LINES, 1, {"shown": 1}, []),
        (LINES[:2] + LINES[3:], -1, {"told": 0, "unadvised": 1, "came": 2, "missing": 1, "misjudged": "p~1"},
         ["another number of p~1", "1 messages did not come", "advised of 1, told 0"]),
        ([*LINES, LINES[1]], -1, {"came": 4, "twice": 1}, ["1 messages came twice"]),
        ([*LINES, came("p~1", "x")], -1, {"came": 4, "foreign": 1}, ["1 messages nobody sent"]),
        ([*LINES, came("q~1", "d", lost=1)], -1, {"told": 2, "unadvised": 1, "came": 4, "twice": 1, "misjudged": "q~1"},
         ["another number of q~1", "came twice", "advised of 1, told 2"]),
        ([*LINES[:2], came("p~1", "c", lost="unknown"), *LINES[3:]], -1, {"unknown": 1}, ["1 losses of unknown size"]),
        (LINES, 2, {"shown": 2, "unshown": 1}, ["receiver-1: show-loss says 2, told 1"]),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_said(tmp_path, lines, shown, changed, words):
    one = account(tmp_path, lines, shown)
    assert one == {**WHOLE, **changed}
    result = judge({**sum_accounts([one]), "repeated": 1})
    assert all(word in said for word, said in zip(words, result.wrong, strict=True))
    assert [line.held for line in result.verdicts].count(False) == len(words)


@pytest.mark.long
def test_a_short_run_over_multicast_tells_what_was_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "LINES", 60)
    said = []
    stage = DemoStage("real", tmp_path / "real", 1, DEMO.options(), said.append, lambda done, of: None)
    done = real.WindowRun(stage).run()
    assert (done["sent"], done["kills"], len(done["accounts"])) == (60 + 3 + 2, 1, 2)
    assert done["repeated"] > 0
    for one in done["accounts"]:
        assert one["told"] == one["dropped"] == one["shown"] == one["advised"] > 3
        assert one["came"] == done["sent"] - one["dropped"]
    assert judge(done).is_held
    written = read_logs(tmp_path / "real" / "trace")
    assert (find_unended(written), find_unlogged(written)) == ([], [])
    logs = {log.head.life: log.rows for log in written}
    assert {"publisher-1~1", "publisher-1~2", "receiver-2~1", "forwarder~1"} <= logs.keys()
    kinds = [row[4] for row in logs["forwarder~1"]]
    assert kinds.count("drop") == done["accounts"][0]["dropped"]
    assert kinds.count("duplicate") == done["repeated"]
    assert read_losses(tmp_path / "real" / "trace").lost_messages == done["told"]
    assert any("SIGKILL to publisher-1" in line for line in said)

"""The demo of the queue: its account of own files, what it calls wrong, and a short run with real SIGKILLs."""

import pytest

from statemachines.demo.cursor_recovery import DEMO, real
from statemachines.demo.protocol import DemoStage
from statemachines.demo.show import DemoResult, judge_step
from statemachines.trace.log import find_unended, find_unlogged, read_logs


def files(folder, told, shipped):
    (folder / "lines-0").write_bytes(b"one\ntwo\nthree\nfour\nfive")
    (folder / "told-0").write_text(told)
    for life, lines in enumerate(shipped, 1):
        (folder / f"shipped-0~{life}").write_bytes(b"".join(line + b"\n" for line in lines))


WHOLE = "b 0 3\na 0 3\nb 3 5\na 3 5\n"
LINES = [b"0 0 one", b"0 1 two", b"0 2 three", b"0 3 four", b"0 4 five"]


@pytest.mark.parametrize(
    ("told", "shipped", "counts", "words"),
    [
        (WHOLE, [LINES[:3], LINES[3:]], (5, 5, 0, 0, 0, 0), []),
        (WHOLE, [LINES[:3]], (5, 3, 0, 2, 1, 0), []),
        (WHOLE, [LINES[1:2]], (5, 1, 0, 4, 2, 0), ["2 blocks never came; shippers killed: 1"]),
        ("b 0 3\na 0 3\nb 3 5\n", [LINES[:4]], (3, 4, 0, 0, 0, 0), []),
        (WHOLE, [LINES, LINES[:1]], (5, 6, 1, 0, 0, 0), ["1 lines came twice"]),
        (WHOLE, [LINES, [b"0 4 fi"]], (5, 6, 0, 0, 0, 1), ["1 lines came that nobody wrote"]),
    ],
)
def test_what_does_not_hold_is_said(tmp_path, told, shipped, counts, words):
    files(tmp_path, told, shipped)
    account = real.account_for(tmp_path, 1)
    names = ("acknowledged", "shipped", "twice", "missing", "blocks", "foreign")
    assert tuple(account[name] for name in names) == counts
    assert account["arrived"] == account["acknowledged"] - account["missing"]
    came = DemoResult("cursor_recovery")
    judge_step(DEMO.steps[0], account, came)
    assert all(word in one for word, one in zip(words, came.wrong, strict=True))
    assert [line.held for line in came.verdicts].count(False) == len(words)


@pytest.mark.long
def test_a_short_run_with_real_kills_loses_nothing_but_what_a_killed_shipper_had(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "LINES", 180)
    monkeypatch.setattr(real, "KILLS", ("writer-0", "shipper-0"))
    said = []
    stage = DemoStage("real", tmp_path / "real", 1, DEMO.options(), said.append, lambda done, of: None)
    came = real.QueueRun(stage).run()
    assert came["wrong"] == []
    assert came["killed"].get("shipper-0") == 1
    assert came["acknowledged"] >= 180 - 3
    assert came["twice"] == came["foreign"] == came["beyond"] == 0
    logs = read_logs(tmp_path / "real" / "trace")
    assert (find_unended(logs), find_unlogged(logs)) == ([], [])
    assert {"nemesis~1", "shipper-0~2", "shipper-1~1"} <= {log.head.life for log in logs}
    assert any("SIGKILL to shipper-0" in line for line in said)

"""The demo of missed samples: its account of own files, what it calls wrong, and a short run over real zenoh."""

import json

import pytest

from statemachines.demo.missed_samples import DEMO, real
from statemachines.demo.protocol import DemoStage, sum_accounts
from statemachines.demo.show import DemoResult, judge_step
from statemachines.trace.log import read_logs
from statemachines_reports.pipeline import analyze

LINES = {"p": ["a", "b", "c"], "q": ["d", "e", "f"]}
WHOLE = {"subscriber": "subscriber-1", "delivered": 5, "recovered": 1, "undelivered": 0, "missed": 0, "silent": 0,
         "twice": 0, "late": 0, "foreign": 0}  # fmt: skip


def came(source, number, payload, **more):
    return {"from": source, "number": number, "payload": payload, **more}


SAID = [
    {"subscribed": "k/*"},
    came("p", 0, "a"),
    came("q", 0, "d"),
    came("p", 1, "b", recovered=True),
    came("q", 1, "e"),
    came("p", 2, "c"),
]


def account(tmp_path, lines):
    path = tmp_path / "subscriber-1.out"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return real.account_for(path, LINES, frozenset({"q"}))


def judge(figures):
    came = DemoResult("missed_samples")
    judge_step(DEMO.steps[0], figures, came)
    return came


def judged(one, dropped=1):
    return judge({**sum_accounts([one]), "theirs": WHOLE, "dropped": dropped})


@pytest.mark.parametrize(
    ("lines", "changed", "words"),
    [
        (SAID, {}, []),
        (
            SAID[:-1],
            {"delivered": 4, "undelivered": 1, "silent": 1},
            ["subscriber-1: 1 samples neither came"],
        ),
        ([*SAID[:-1], {"missed": "p", "first": 2, "last": 2}], {"delivered": 4, "undelivered": 1, "missed": 1}, []),
        ([*SAID[:-1], {"lost": 1, "of": "p"}], {"delivered": 4, "undelivered": 1, "missed": 1}, []),
        ([*SAID, SAID[1]], {"twice": 1}, ["1 samples came twice"]),
        ([SAID[3], *SAID[:3], *SAID[4:]], {"late": 1}, ["1 samples came after a later one"]),
        ([*SAID[:-1], came("p", 2, "x")], {"foreign": 1}, ["1 samples are not what was published"]),
        ([*SAID, came("p", 3, "x")], {"delivered": 6, "foreign": 1}, ["are not what was published"]),
        ([*SAID, came("z", 0, "x")], {"delivered": 6, "foreign": 1}, ["are not what was published"]),
        ([SAID[0], SAID[1], *SAID[3:]], {"delivered": 4, "undelivered": 1, "silent": 1}, ["neither came"]),
    ],
)
def test_what_does_not_hold_is_said(tmp_path, lines, changed, words):
    one = account(tmp_path, lines)
    assert one == {**WHOLE, **changed}
    result = judged(one)
    assert all(word in said for word, said in zip(words, result.wrong, strict=True))
    assert [line.held for line in result.verdicts].count(False) == len(words)


def test_a_run_in_which_nothing_is_lost_shows_nothing():
    for one, dropped in ((WHOLE, 0), ({**WHOLE, "recovered": 0}, 1)):
        assert [line.held for line in judged(one, dropped).verdicts] == [True, True, False]
    assert DEMO.steps[1].run.keywords["least"] == {"delivered": 1_000, "queries": 1}


@pytest.mark.long
def test_a_short_run_over_zenoh_delivers_what_the_link_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "LINES", 60)
    said = []
    stage = DemoStage("real", tmp_path / "real", 1, DEMO.options(), said.append, lambda done, whole: None)
    figures = real.SampleRun(stage).run()
    assert judge(figures).is_held, figures
    assert sum("SIGKILL" in line for line in said) == 2
    names = {log.head.node for log in read_logs(tmp_path / "real" / "trace")}
    assert names == {"nemesis", "cache-1", *(f"publisher-{n}" for n in (1, 2, 3)), *(f"subscriber-{n}" for n in (1, 2))}
    analysis = analyze(tmp_path / "real" / "trace", tmp_path / "report", spark=False)
    assert analysis.is_held, analysis.tables["findings"]
    assert analysis.absent == []
    (total,) = analysis.tables["scenarios"]
    assert total["delivered"] == figures["delivered"]
    assert total["missed"] == figures["missed"]
    assert total["recovered"] > 0

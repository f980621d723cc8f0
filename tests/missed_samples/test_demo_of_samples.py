"""The demo of missed samples: its account of own files, what it calls wrong, and a short run over real zenoh."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from statemachines.demo.missed_samples import real
from statemachines.demo.missed_samples.account import SampleAccount, account_for, wrong_in
from statemachines.demo.missed_samples.play import real_lines, too_tame
from statemachines.trace.log import read_logs
from statemachines_reports.pipeline import analyze

LINES = {"p": ["a", "b", "c"], "q": ["d", "e", "f"]}
WHOLE = SampleAccount("subscriber-1", 5, 1, 0, 0, 0, 0, 0, 0)


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
    return account_for(path, LINES, frozenset({"q"}))


def test_what_a_subscriber_got_is_compared_with_what_was_published(tmp_path):
    assert account(tmp_path, SAID) == WHOLE
    assert wrong_in([WHOLE]) == []


@pytest.mark.parametrize(
    ("lines", "changed", "words"),
    [
        (SAID[:-1], {"delivered": 4, "undelivered": 1, "silent": 1}, ["1 samples neither came nor are reported"]),
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
    assert one == replace(WHOLE, **changed)
    wrong = wrong_in([one])
    assert len(wrong) == len(words)
    assert all(word in said for word, said in zip(words, wrong, strict=True))
    verdicts = real_lines(real.SampleRun([one], WHOLE, 1, 1.0, wrong))
    assert all(one.held for one in verdicts) is not bool(words)


def test_a_run_in_which_nothing_is_lost_shows_nothing():
    assert not all(one.held for one in real_lines(real.SampleRun([WHOLE], WHOLE, 0, 1.0, [])))
    assert not all(one.held for one in real_lines(real.SampleRun([replace(WHOLE, recovered=0)], WHOLE, 1, 1.0, [])))
    assert too_tame(SimpleNamespace(tally={"delivered": 999, "queries": 1}))
    assert too_tame(SimpleNamespace(tally={"delivered": 1_000, "queries": 0}))
    assert too_tame(SimpleNamespace(tally={"delivered": 1_000, "queries": 1})) == ""


@pytest.mark.long
def test_a_short_run_over_zenoh_delivers_what_the_link_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "LINES", 60)
    said = []
    came = real.run(tmp_path / "real", None, said.append, lambda done, whole: None)
    assert came.wrong == []
    assert all(one.held for one in real_lines(came)), came
    assert sum("SIGKILL" in line for line in said) == 2
    names = {log.head.node for log in read_logs(tmp_path / "real" / "trace")}
    assert names == {"nemesis", "cache-1", *(f"publisher-{n}" for n in (1, 2, 3)), *(f"subscriber-{n}" for n in (1, 2))}
    analysis = analyze(tmp_path / "real" / "trace", tmp_path / "report", spark=False)
    assert analysis.is_held, analysis.tables["findings"]
    assert analysis.absent == []
    (total,) = analysis.tables["scenarios"]
    assert total["delivered"] == sum(one.delivered for one in came.accounts)
    assert total["missed"] == sum(one.missed for one in came.accounts)
    assert total["recovered"] > 0

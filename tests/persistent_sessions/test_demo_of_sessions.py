"""The demo of sessions: its account of own files, what it calls wrong, and a short run with a real SIGKILL."""

import asyncio
import json
from functools import partial
from types import SimpleNamespace

import pytest
from waiting import turns, until_async

from statemachines.demo.persistent_sessions import DEMO, broker_kill, real
from statemachines.demo.protocol import DemoStage
from statemachines.demo.show import DemoResult, judge_step
from statemachines.drivers.persistent_sessions import SessionTaken
from statemachines.testing.mqtt_connections.mqtt_broker import KINDS as KINDS_OF_BROKERS
from statemachines.trace.log import read_logs
from statemachines_reports.pipeline import analyze

LINES = [b"one", b"two words", b"three", b"four"]
WHOLE = {"stored": 4, "delivered": 4, "again": 1, "twice": 0, "missing": 0, "late": 0, "foreign": 0}
KINDS = ("mosquitto-persistence", "ours-process")
SAID = ["0 new one", "1 new two words", "1 again two words", "2 new three", "3 new four"]


def account(folder, said, stored="0\n1\n3\n2\n"):
    (folder / "published").write_text(stored)
    (folder / "got").write_text("".join(f"{line}\n" for line in said))
    return real.account_for(folder, LINES)


def make_stage(part, out, said, heard):
    return DemoStage(part, out / part, 1, DEMO.options(), said.append, lambda done, of: heard.append((done, of)))


def judge(figures, step=0):
    came = DemoResult("persistent_sessions")
    judge_step(DEMO.steps[step], {"waiting": 3, "taken": 1, **figures}, came)
    return came


@pytest.mark.parametrize(
    ("said", "changed", "words"),
    [
        (SAID, {}, []),
        (SAID[:-1], {"delivered": 3, "missing": 1}, ["1 lines were stored and never came"]),
        ([*SAID, "0 new one"], {"twice": 1}, ["1 lines came twice and were not marked"]),
        ([*SAID, "0 again one"], {"again": 2}, []),
        ([SAID[1], SAID[0], *SAID[2:]], {"late": 1}, ["1 lines came behind a later one"]),
        ([*SAID[:-1], "3 new fou"], {"foreign": 1}, ["1 lines are not what was published"]),
        ([*SAID, "4 new five"], {"delivered": 5, "foreign": 1}, ["are not what was published"]),
        (["-1 new four", *SAID], {"delivered": 5, "foreign": 1}, ["are not what was published"]),
    ],
)
def test_what_does_not_hold_is_said(tmp_path, said, changed, words):
    one = account(tmp_path, said)
    assert one == {**WHOLE, **changed}
    result = judge(one)
    assert all(word in line for word, line in zip(words, result.wrong, strict=True))
    assert [line.held for line in result.verdicts].count(False) == len(words)


async def test_a_client_that_is_held_acknowledges_nothing_until_it_goes_on(tmp_path):
    acknowledged = []

    async def messages():
        for number in range(3):
            payload = b"%d line %d" % (number, number)
            yield SimpleNamespace(payload=payload, dup=number == 1, acknowledge=partial(acknowledged.append, number))
        raise SessionTaken("by another")

    with (tmp_path / "got").open("wb", buffering=0) as file:
        client = real.DemoClient(file)
        client.may_acknowledge.clear()
        reading = asyncio.ensure_future(client.read(messages()))
        await until_async(lambda: client.numbers)
        await turns(5)
        assert (client.numbers, acknowledged) == ({0}, [])
        assert client.repeated_at == 0
        client.may_acknowledge.set()
        await reading
    assert acknowledged == [0, 1, 2]
    assert client.repeated_at > 0
    assert client.taken == 1
    assert (tmp_path / "got").read_bytes() == b"0 new line 0\n1 again line 1\n2 new line 2\n"


def test_a_broker_that_loses_or_reorders_is_not_whole_and_one_that_is_missing_says_so(tmp_path, monkeypatch):
    whole = {"published": 10, "rate": 50.0, "kept": 10, "is_ordered": True}
    assert judge(whole, 1).is_held
    for changed in ({"kept": 9}, {"is_ordered": False}, {"published": 0, "kept": 0}):
        assert not judge({**whole, **changed}, 1).is_held, changed
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(KINDS_OF_BROKERS, "nats", KINDS_OF_BROKERS["nats"]._replace(program="no-such-broker"))
    monkeypatch.setattr(broker_kill, "KINDS", ("nats",))
    came = broker_kill.BrokerKills(make_stage("brokers", tmp_path, [], [])).run()
    assert "no-such-broker" in came["text"]
    assert "install the package" in came["text"]
    assert not judge(came, 1).is_held


@pytest.mark.long
def test_a_short_run_loses_a_node_and_no_line(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "LINES", 300)
    monkeypatch.setattr(real, "HELD", 80)
    for name, value in (("KINDS", KINDS), ("MESSAGES", 60), ("QUIET_S", 3.0)):
        monkeypatch.setattr(broker_kill, name, value)
    said, heard = [], []
    one, brokers = (step.run(make_stage(step.part, tmp_path, said, heard)) for step in DEMO.steps)
    for number, figures in enumerate((one, brokers)):
        assert [line for line in judge(figures, number).verdicts if not line.held] == []
        assert figures.get("wrong", []) == []
    assert (one["stored"], one["delivered"]) == (300, 300)
    assert 30 <= one["waiting"] <= 80
    assert one["back_s"] > 0
    assert one["slowest_s"] > 0
    assert heard[-1] == (300, 300)
    lost, kept = brokers["rows"]
    assert (lost["published"], lost["kept"]) == (60, 0)
    assert (kept["published"], kept["kept"], kept["is_ordered"]) == (60, 60, True)
    assert kept["text"].endswith("after SIGKILL 60 of 60 kept, at the other node")
    assert [line for line in said if line.startswith("brokers: ")] == [
        f"brokers: {one['text']}" for one in (lost, kept)
    ]
    assert sum("SIGKILL to a" in line for line in said) == 1
    lives = sorted(log.head.life.partition(".")[0] for log in read_logs(tmp_path / "real" / "trace"))
    assert lives == ["a~1", "a~2", "b~1", "nemesis~1"]
    analysis = analyze(tmp_path / "real" / "trace", tmp_path / "report", spark=False)
    assert analysis.is_held, analysis.tables["findings"]
    assert analysis.absent == []
    (total,) = analysis.tables["scenarios"]
    assert (total["stored"], total["waiting"], total["sent_again"]) == (300, 0, one["again"])
    assert {line["why"] for line in analysis.tables["takeovers"]} >= {"handed"}
    measured = {
        line["measure"] for line in json.loads((tmp_path / "report" / "summary.json").read_bytes())["latencies"]
    }
    assert measured == {"resume", "store", "fail_over"}

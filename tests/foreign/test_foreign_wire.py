"""Borrowers of others over the wire: they pass, mistakes in them are found, and our real leader serves them."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys

import msgspec
import pytest
from foreign_programs import BORROWER, HERE, plant

from statemachines.drivers.credentials import Credentials
from statemachines.drivers.shared_subscriptions import Publisher, declare
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.wire_choice import LeftOut, WireChoice
from statemachines.testing.conformance.wire_report import text_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_shrink import load_script, save_script, shrink_run
from statemachines.testing.conformance.wire_verdict import WireOptions
from statemachines.testing.shared_subscriptions.nodes import GroupHarness

ROLE = role_of("shared_subscriptions/borrower")
PASS_S, BUG_S = 3.0, 45.0
"""A run that passes takes so long; one with a mistake ends when it is found, after two seconds as a rule."""

LATE_COPY = "a late copy of a grant installs a stream that was revoked"
MISTAKES = {
    **{name: BORROWER[name] for name in (LATE_COPY, "the last report is lost and never repeated")},
    "an id is used again": ('"id": f"{self.connection.life}/{self.count}"', '"id": f"{self.connection.life}/1"'),
    "timers outlive the instance that set them": ("        self.timers.clear()\n", ""),
    "the first leader is written to for ever": (
        'self.connection.send(self.borrower.id, effect["to"], effect["message"])',
        'self.connection.send(self.borrower.id, "leader", effect["message"])',
    ),
}


def command(folder):
    python = (sys.executable, str(folder / "borrower_wire.py"), "{address}", "{configuration}")
    return (*python, "--life", "{life}", "--seed", "1")


def judge(command, **options):
    return asyncio.run(WireRun(ROLE, WireOptions(**options), command).judge(lambda address: None))


def test_a_foreign_borrower_passes_over_the_wire():
    verdict = judge(command(HERE), seconds=PASS_S, tolerance_s=30.0, seed=1)
    assert verdict.outcome is ConformanceOutcome.PASS, text_of(verdict, ROLE)
    assert len(verdict.cells) >= 4


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_over_the_wire(tmp_path, name):
    plant(tmp_path, ("borrower_wire.py", "borrower.py"), *MISTAKES[name])
    verdict = judge(command(tmp_path), seconds=BUG_S, rate=40.0, seed=1)
    assert verdict.outcome is ConformanceOutcome.FAIL
    shown = text_of(verdict, ROLE) if verdict.violation else verdict.why
    assert "by SS-" in shown or (name not in BORROWER and "has ended with exit code 1" in shown)


def test_a_borrower_proves_its_secret_to_the_kit(tmp_path):
    secret = "0123456789abcdef"
    own, credentials = (*command(HERE), "--secret", secret), Credentials(secret=secret.encode())
    verdict = judge(own, seconds=0.8, tolerance_s=30.0, faults=0.0, credentials=credentials)
    assert verdict.outcome is ConformanceOutcome.PASS, text_of(verdict, ROLE)


def test_a_failing_run_is_made_shorter_and_repeats(tmp_path):
    plant(tmp_path, ("borrower.py",), *BORROWER[LATE_COPY])
    own, options = command(tmp_path), WireOptions(seconds=BUG_S, rate=40.0, seed=2)
    before = judge(own, seconds=BUG_S, rate=40.0, seed=2)
    assert before.outcome is ConformanceOutcome.FAIL
    shrunk = asyncio.run(shrink_run(ROLE, options, own, before, bound_s=6.0))
    sizes = [len(one.inputs) + len(one.faults) for one in (before, shrunk.verdict)]
    assert shrunk.attempts > 0
    assert (sizes[1] < sizes[0]) == (shrunk.failed > 0)
    assert shrunk.verdict.outcome is ConformanceOutcome.FAIL
    save_script(tmp_path / "run.json", ROLE.fsm.full_name, shrunk.options)
    script = load_script(tmp_path / "run.json", ROLE.fsm.full_name)
    assert script.apply(WireOptions()).without == shrunk.options.without
    with pytest.raises(ConfigurationError, match="is of the role shared_subscriptions/borrower"):
        load_script(tmp_path / "run.json", "shared_subscriptions/leader")


def test_a_decision_is_the_same_whichever_others_are_left_out():
    every, some = (WireChoice(3, left) for left in (LeftOut(), LeftOut(inputs=frozenset({1}), faults_from=2)))
    drawn = [[one.draw_input(1.0) for _ in range(4)] for one in (every, some)]
    assert [chance is None for chance in drawn[1]] == [False, True, False, False]
    assert drawn[0][2].random() == drawn[1][2].random()
    assert [some.draw_fault(1.0) is None for _ in range(4)] == [False, False, True, True]


def test_our_leader_serves_a_foreign_borrower(tmp_path):
    """It gets every stream of a group from `gapless node leader`, reads it, and its progress is committed."""
    times = ROLE.wire.configuration
    config, store = tmp_path / "times.toml", tmp_path / "messages.db"
    given = {name: one for name, one in msgspec.to_builtins(times).items() if one is not None}
    config.write_text("".join(f"{name} = {msgspec.json.encode(one).decode()}\n" for name, one in given.items()))
    asyncio.run(prepare(store, times))
    (identity,) = sqlite3.connect(store).execute("SELECT identity FROM store").fetchone()
    secret = tmp_path / "group.secret"
    secret.touch(0o600)
    secret.write_text("0123456789abcdef")
    with GroupHarness(tmp_path, store=str(store), config=config, common=("--secret-file", str(secret))) as nodes:
        leader = nodes.leader()
        words = [sys.executable, str(HERE / "borrower_wire.py"), leader.address, msgspec.json.encode(times).decode()]
        words += ["--store", identity, "--database", str(store), "--secret", "0123456789abcdef"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as foreign:
            try:
                lines = [foreign.stdout.readline().split() for _ in range(10)]
                nodes.until(lambda: read_progress(store) == [3, 7], "the progress of both streams is committed")
            finally:
                foreign.kill()
    assert sorted(line[1] for line in lines if line[0].endswith("/a")) == ["0", "1", "2"]
    assert sorted(line[1] for line in lines if line[0].endswith("/b")) == [str(n) for n in range(7)]


async def prepare(store, times: Configuration):
    await declare("$shared/g/#", store=store, start="beginning", configuration=times)
    async with Publisher(store) as publisher:
        await publisher.publish("a", [b"x"] * 3)
        await publisher.publish("b", [b"y"] * 7)


def read_progress(store):
    """The committed progress of all streams, in order."""
    rows = sqlite3.connect(store).execute("SELECT value FROM group_records WHERE key LIKE '%:progress:%'").fetchall()
    return sorted(msgspec.msgpack.decode(value) for (value,) in rows)

"""The witness before the borrower, explored: liars, reads that come late, a store that was put back (S17)."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import STAY, Row, is_fresh, node_of
from statemachines.shared_subscriptions import agent_process, witness
from statemachines.shared_subscriptions.agent_process import AGENT_MACHINE, is_for_living
from statemachines.shared_subscriptions.message import Grant, Invalidate, LeaderConnectResponse, PingResponse
from statemachines.shared_subscriptions.witness import Doubt, RestTimer, StoreFailed, is_believed, is_misled
from statemachines_spec.bug import change_rows, redeclare, replace_call
from statemachines_spec.explorer.explore import explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.systems import build, obligations_of, system
from statemachines_spec.shared_subscriptions.witness_consumer import LIAR, Lie, WitnessedConsumer

LIED_TO = GroupSetting(consumers=1, pretends=1, lives=2)
UNREAD = GroupSetting(consumers=1, pretends=1, read_failures=1)


def believed(wrong):
    """Also what `wrong` says is believed."""
    return replace_call(agent_process, "is_believed", lambda record, sender, message: wrong(record, sender, message))


def also(kind):
    """Whatever of this kind is said, anybody is believed."""
    return believed(lambda record, sender, message: isinstance(message, kind) or is_believed(record, sender, message))


def misled(wrong):
    return replace_call(agent_process, "is_misled", wrong)


def row(matches, **changes):
    """The rows of the witness that match, changed."""

    def change(one):
        if not isinstance(one, Row) or not matches(one):
            return [one]
        fields = {"to": one.to, "do": one.do, "when": one.when, **changes}
        return [Row(one.on, one.source, fields["to"], fields["do"], fields["when"], one.clause)]

    return lambda stack: redeclare(stack, witness.WITNESS, change)


def tells(change):
    """What is kept of the claim that was read."""

    def tell(record, event, now_ns):
        after, effects = witness.tell_claim(record, event, now_ns)
        return change(record, after, effects)

    return change_rows(witness.WITNESS, "tell_claim", do=tell)


def forget(record, event, now_ns):
    return replace(record, leader="", epoch=0, doubted=True), ()


def is_of_host(record, sender, message):
    """Epochs are compared, and the node of who speaks."""
    epoch = getattr(message, "epoch", None)
    return bool(record.leader) and epoch == record.epoch and node_of(sender) == node_of(record.leader)


def doubt_without_asking(record, event, now_ns):
    return agent_process.doubt(record, event, now_ns)[0], ()


def keep_what_waits(record, event, now_ns):
    """What waited is heard, and waits on."""
    after, effects = agent_process.hear_doubted(record, event, now_ns)
    return replace(after, claims=record.claims), effects


MISTAKES = {
    "sender not compared": (
        "lied to",
        "S17",
        believed(lambda record, sender, one: is_believed(record, record.leader, one)),
    ),
    "connect responses of anybody": ("lied to", "S17", also(LeaderConnectResponse)),
    "invalidations of anybody": ("lied to", "L8", also(Invalidate)),
    "grants of anybody": ("lied to", "L8", also(Grant)),
    "answers to pings of anybody": ("lied to", "L8", also(PingResponse)),
    "everybody heard": ("lied to", "S17", change_rows(AGENT_MACHINE, "hear", when=is_for_living)),
    "the leader a message names": (
        "lied to",
        "L8",
        believed(lambda record, sender, one: is_believed(record, getattr(one, "leader", sender), one)),
    ),
    "nobody doubted": ("lied to", "S17", change_rows(AGENT_MACHINE, "doubt", do=doubt_without_asking)),
    "what waits is kept": ("lied to", "S17", change_rows(AGENT_MACHINE, "hear_doubted", do=keep_what_waits)),
    "everybody misled": ("lied to", "L8", misled(lambda record, one: True)),
    "not told": ("lied to", "S17", tells(lambda before, after, effects: (after, ()))),
    "asked without a rest": (
        "lied to",
        "S17",
        row(lambda one: one.on is Doubt and one.source is witness.RESTING, to=witness.ASKING, do=witness.ask),
    ),
    "doubt forgotten": ("lied to", "S17", row(lambda one: one.on is Doubt and one.source is witness.RESTING, do=None)),
    "never read again": ("lied to", "S17", row(lambda one: one.on is RestTimer, to=witness.IDLE, do=None)),
    "a failed read is not repeated": ("unread", "S17", row(lambda one: one.on is StoreFailed, do=None)),
    "a failed read forgets": ("unread", "S17", row(lambda one: one.on is StoreFailed, do=forget)),
    "nobody misled": ("put back", "S17", misled(lambda record, one: False)),
    "misled by an epoch alone": (
        "put back",
        "S17",
        misled(lambda record, one: is_misled(record, one) and (one.link is None or one.link.epoch != record.epoch)),
    ),
    "who waits is never misled": (
        "put back",
        "S17",
        misled(lambda record, one: one.link is not None and is_misled(record, one)),
    ),
    "a leader known by its host": ("put back", "S17", believed(is_of_host)),
    "not kept": ("lied to", "S17", tells(lambda before, after, effects: (replace(after, epoch=before.epoch), effects))),
    "epochs never fall": (
        "put back",
        "S17",
        tells(lambda before, after, effects: (after if after.epoch >= before.epoch else before, effects)),
    ),
}
"""Mistake -> where it is found, what breaks, how it is made."""


def settings():
    about = system("restored-claim", "small")
    return {
        "lied to": build("lied to", "", LIED_TO),
        "unread": build("unread", "", UNREAD),
        "put back": replace(about, origin=None),  # a mistake is made in this process alone
    }


@pytest.mark.parametrize("mistake", MISTAKES)
def test_S17_a_mistake_of_the_witness_is_found_by_exploring(mistake):
    where, broken, apply = MISTAKES[mistake]
    with ExitStack() as stack:
        apply(stack)
        result = explore(settings()[where])
    assert result.path is not None
    assert result.path.broken.partition(" ")[0] == broken


@pytest.mark.parametrize("where", mark_long(["lied to", "unread", "put back"], "put back"))
def test_S17_without_a_mistake_nothing_breaks(where):
    result = explore(settings()[where])
    assert (result.is_held, result.is_shown) == (True, True)


SLOW = {
    "nobody believed": believed(lambda record, sender, message: False),
    "it rests for ever": row(lambda one: one.on is RestTimer and one.to is witness.IDLE, to=STAY, do=None),
}


@pytest.mark.parametrize("mistake", mark_long([None, *SLOW], "None", "it rests for ever"))
def test_S17_who_believes_nobody_is_never_connected(mistake):
    one = build("lied to", "", LIED_TO)
    with ExitStack() as stack:
        if mistake is not None:
            SLOW[mistake](stack)
        (result,) = live(one, [each for each in obligations_of(one) if each.name.startswith("L1")])
    assert result.open_states > 0
    assert result.is_held is (mistake is None)


def test_lies_are_said_under_no_name_but_the_liar_s():
    consumer = next(one for one in build("lied to", "", LIED_TO).actors if isinstance(one, WitnessedConsumer))
    lies = [one for one in consumer.inputs(consumer.initial()) if isinstance(one, Lie)]
    assert {node_of(one.sender) for one in lies} == {node_of(LIAR)}
    assert {one.message.epoch for one in lies} == {1, 2}, "that of the leader, and one that nobody ever reached"
    assert {is_fresh(one.sender) for one in lies} == {True, False}

"""Forged messages: of any type, one field says something else that its type allows; the same chance makes the same."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
import pytest

from statemachines.kernel import Message
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderMessage, Number, Ping, Report
from statemachines_sim.forged_message import Forger

KINDS = (*BorrowerMessage.__args__, *LeaderMessage.__args__)


class Small(Message, frozen=True):
    """Numbers between bounds, and a flag."""

    level: Annotated[int, msgspec.Meta(ge=3, le=4)]
    on: bool


class Fixed(Message, frozen=True):
    """Nothing else can stand in it."""

    level: Annotated[int, msgspec.Meta(ge=7, le=7)]


def differing(one, other):
    return [name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_field_of_each_message_is_forged_alone_and_is_what_the_wire_carries(kind):
    forger = Forger(Random(1), ["consumer-1~1/1", "0.0/a"])
    true = forger.make(kind)
    changed = set()
    for _ in range(300):
        lie = forger.forge(true)
        (name,) = differing(true, lie)
        changed.add(name)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(lie), type=kind) == lie
    assert changed == set(kind.__struct_fields__)


@pytest.mark.long
def test_reports_are_left_out_repeated_changed_and_made_up():
    forger = Forger(Random(2), ["0.0/a"])
    held = (Report("0.0/a", 1, 5, False), Report("0.0/b", 2, 7, True))
    true = Ping("c1~1/1", 1, 1, 1, held)
    lists = {lie.reports for _ in range(2_000) if (lie := forger.forge(true)).reports != held}
    assert {(), held[:1], held[1:], (*held, held[0])} <= lists
    assert any(len(one) == 3 and one[:2] == held and one[2] not in held for one in lists), "one that was made up"
    changed = {
        name for one in lists if len(one) == 2 for pair in zip(one, held, strict=True) for name in differing(*pair)
    }
    assert changed == set(Report.__struct_fields__)


def test_a_number_stays_within_its_bounds_and_a_field_without_another_value_as_it_is():
    forger = Forger(Random(3))
    lies = {forger.forge(Small(3, False)) for _ in range(50)}
    assert lies == {Small(4, False), Small(3, True)}
    assert forger.forge(Fixed(7)) == Fixed(7)


@pytest.mark.long
def test_what_was_heard_may_be_said_in_the_place_of_its_like():
    forger = Forger(Random(4))
    forger.learn(Ping("c2~1/1", 77, 5, 9, (Report("0.0/far", 41, 13, False),)))
    lies = [forger.forge(Ping("c1~1/1", 1, 1, 1, (Report("0.0/a", 1, 5, False),))) for _ in range(2_000)]
    assert 77 in {lie.epoch for lie in lies}
    assert 77 not in {lie.n for lie in lies}
    assert "c2~1/1" in {lie.borrower for lie in lies}
    reports = [report for lie in lies for report in lie.reports]
    assert {41} <= {report.grant for report in reports}
    assert "0.0/far" in {report.stream for report in reports}


def test_the_same_chance_forges_the_same():
    def lies(seed):
        forger = Forger(Random(seed), ["a", "b"])
        return [forger.forge(forger.make(kind)) for kind in KINDS for _ in range(5)]

    assert lies(5) == lies(5) != lies(6)


def test_a_type_that_nobody_can_forge_is_named():
    class Odd(Message, frozen=True):
        share: float

    with pytest.raises(TypeError, match="share: nobody knows how to forge a FloatType"):
        Forger(Random(1)).make(Odd)


def test_numbers_are_those_that_peers_may_send():
    assert {Forger(Random(seed)).make(Ping).n >= 0 for seed in range(50)} == {True}
    assert Number.__metadata__[0].le == 2**63 - 1

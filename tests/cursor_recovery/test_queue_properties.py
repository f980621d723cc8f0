"""The observers of the properties: for each one run that breaks it, and one near it that does not."""

from __future__ import annotations

from functools import reduce

import pytest

from statemachines.cursor_recovery.properties.delivered_blocks import Acknowledged, Delivered, DeliveredBlocks, Gone
from statemachines.cursor_recovery.properties.reserved_blocks import (
    BlockClaim,
    BlockSkip,
    ProcessDied,
    Reservation,
    ReservedBlocks,
)
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome, Skipped, Taken
from statemachines.cursor_recovery.writer import Outcome, Reserved, WriteDone

W, R, S = "writer", "reader", "another reader"
A, B, OTHER, LONGER = (b"AAAA", 1), (b"BBBB", 1), (b"????", 1), (b"????????", 1)
WRITTEN = (A, B)


def acknowledge(position=0, block=A):
    return W, Acknowledged(position, block)


def deliver(position=0, block=A, reader=R, outcome=ReadOutcome.DELIVERED):
    return reader, Delivered(outcome, position, *block, position + 20)


def skip(first, last):
    return R, Skipped(first, last)


def play(*events, seen=None, written=WRITTEN):
    """The names of what breaks by the last event; nothing breaks before it."""
    *before, (party, event) = events
    seen = DeliveredBlocks() if seen is None else seen
    for who, what in before:
        seen, broken = seen.observe(who, what, written)
        assert broken == ()
    return [one.name for one in seen.observe(party, event, written)[1]]


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        ((deliver(block=OTHER),), ["INTEG"]),
        ((deliver(block=B),), []),
        ((acknowledge(), deliver(block=LONGER)), ["INTEG"]),
        ((deliver(), deliver(20)), ["ONCE"]),
        ((deliver(), deliver(20, B)), []),
        ((deliver(), deliver(0, B, S)), ["ONCE"]),
        ((deliver(20, B), deliver()), ["ORDER"]),
        ((deliver(20, B), deliver(reader=S)), []),
        ((acknowledge(), skip(0, 19)), ["ACK"]),
        ((acknowledge(20), skip(0, 19)), []),
        ((skip(0, 39), acknowledge(20)), ["ACK"]),
        ((skip(0, 19), acknowledge(20)), []),
        ((acknowledge(), deliver(block=B)), ["KEPT"]),
        ((acknowledge(), deliver()), []),
        ((acknowledge(), deliver(20)), ["KEPT"]),
        ((deliver(20), acknowledge()), ["KEPT"]),
        ((deliver(), acknowledge()), []),
        ((acknowledge(), (R, Gone(0, 2, 20))), ["KEPT"]),
        ((acknowledge(), (R, Gone(0, 1, 20))), []),
        ((acknowledge(), deliver(outcome=ReadOutcome.DISCARDED)), []),
    ],
)
def test_what_is_told_breaks_what_it_breaks(events, broken):
    assert play(*events) == broken


@pytest.mark.parametrize(
    ("events", "is_open"),
    [
        ((acknowledge(),), True),
        ((acknowledge(), deliver()), False),
        ((deliver(), acknowledge()), False),
        ((acknowledge(), (R, Gone(0, 1, 20))), False),
        (((R, Gone(0, 1, 20)), acknowledge()), False),
        ((acknowledge(), skip(0, 19)), True),
    ],
)
def test_READ_what_is_acknowledged_is_open_until_it_comes_or_is_taken_along(events, is_open):
    seen = reduce(lambda seen, one: seen.observe(*one, WRITTEN)[0], events, DeliveredBlocks())
    assert bool(seen.open) is is_open


WRITE = ((W, Reservation(0, 20, A)), (W, Reserved(0, 19)), (W, WriteDone(Outcome.WRITTEN, 0)))
READ = ((R, BlockClaim(0, 20)), (R, Taken(0, 19)), (R, ReadDone(ReadOutcome.DELIVERED, 0, 1, b"AAAA")))


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        ((*WRITE, *READ), []),
        (((W, Reservation(0, 24, A)),), ["SPACE"]),
        ((*WRITE[:1], (W, Reserved(0, 20))), ["SPACE"]),
        ((*WRITE, *READ[:1], (R, Taken(0, 23))), ["SPACE"]),
        ((*WRITE[:1], (W, WriteDone(Outcome.WRITTEN, 20))), ["INTEG"]),
        ((*WRITE[:1], (W, WriteDone(Outcome.FENCED))), []),
        ((*WRITE, (R, BlockClaim(0, 16))), ["INTEG"]),
        ((*WRITE, READ[2]), ["INTEG"]),
        ((*WRITE[:1], (R, BlockSkip(0, 20))), ["ACK"]),
        ((*WRITE[:1], (W, ProcessDied()), (R, BlockSkip(0, 20))), []),
        ((*WRITE, *READ[:1], (R, Skipped(0, 19))), ["ACK"]),
        ((*WRITE, (R, Skipped(0, 19))), []),
    ],
)
def test_who_sees_the_accesses_judges_by_them(events, broken):
    assert play_accesses(*events)[1] == broken


def play_accesses(*events):
    seen, broken = ReservedBlocks(), ()
    for party, event in events:
        assert broken == ()
        seen, broken = seen.observe(party, event)
    return seen, [one.name for one in broken]


def test_SPACE_stores_hit_the_header_and_copies_the_data_of_the_writer_s_own_block():
    seen, _ = play_accesses((W, Reservation(96, 116, A)))
    assert [bool(seen.check_copy(W, *at)) for at in ((112, 4), (112, 5), (111, 4), (116, 1))] == [
        False,
        True,
        True,
        True,
    ]
    assert [bool(seen.check_header(W, cell, 100)) for cell in (96, 0, 8, 12, 92)] == [False, False, False, True, True]
    assert seen.check_copy(R, 112, 4)
    assert seen.check_header(R, 96, 100)


def names(broken):
    return [one.name for one in broken]

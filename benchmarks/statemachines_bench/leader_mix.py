"""A leading Leader with many streams, and progress of them: what the growth of its step is measured on."""

from __future__ import annotations

from collections import deque
from random import Random

from msgspec.structs import replace

from statemachines.kernel import Effects, Send, in_order
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.message import Grant, LeaderWanted, UpdateProgress
from statemachines.shared_subscriptions.stream_store import StreamInfo, StreamsListed
from statemachines_bench.borrower_mix import LEADER_ID, Fed, stream_name
from statemachines_bench.hand_leader import HandAssignment, HandLeader

MEMBERS = 10


def leading_record(streams: int) -> LeaderRecord:
    """A leader with ten members that hold so many streams, all granted, nothing staged."""
    record = LeaderRecord(LEADER_ID, "group", "orders/#", Configuration().check())
    record = replace(record, status=LEADING, epoch=1, list_n=1, number=1)
    for number in range(MEMBERS):
        record = LEADER.step(record, LeaderWanted(f"consumer-{number}~1/1", "group", "orders/#"), MS).record
    infos = tuple(StreamInfo(stream_name(number), 0, 0, 0, 2**40) for number in range(streams))
    listed = LEADER.step(record, StreamsListed(1, infos, False), 2 * MS)
    record = listed.record
    waiting = deque(list_answers(listed.effects))
    while waiting:  # an answer makes room for the next grant
        step = LEADER.step(record, waiting.popleft(), 3 * MS)
        record = step.record
        waiting += list_answers(step.effects)
    return record


def list_answers(effects: Effects) -> list[UpdateProgress]:
    """What the borrowers say to the grants among the effects."""
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return [make_progress(grant, grant.progress) for grant in messages if isinstance(grant, Grant)]


def make_progress(grant: Grant, offset: int) -> UpdateProgress:
    """The progress of a grant, from its borrower."""
    return UpdateProgress(grant.borrower, grant.epoch, grant.registration, grant.stream, grant.grant, offset, False)


def list_updating(record: LeaderRecord, events: int, seed: int = 1) -> list[Fed]:
    """Progress of streams drawn uniformly, each from its owner."""
    chance = Random(seed)
    held = [assignment for _, assignment in in_order(record.assignments)]
    fed: list[Fed] = []
    for at in range(events):
        one = chance.choice(held)
        link = one.link
        fed.append(
            (UpdateProgress(link.borrower, link.epoch, link.registration, one.stream, one.grant, at + 1, False), 4 * MS)
        )
    return fed


def hand_leader(record: LeaderRecord) -> HandLeader:
    """A leader written by hand with the members and assignments of the record."""
    hand = HandLeader(record.epoch, record.configuration)
    hand.members = {borrower: member.link.registration for borrower, member in in_order(record.members)}
    hand.assignments = {
        stream: HandAssignment(one.link.borrower, one.grant, one.progress)
        for stream, one in in_order(record.assignments)
    }
    return hand

"""Every monitor catches a bug that is planted for it, and is silent without the bug."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from statemachines.kernel import Fsm, Ignore, Map, Row, Send, SetTimer
from statemachines.kernel.turn import ProcessTurn
from statemachines.shared_subscriptions import (
    assignment,
    borrower,
    claim,
    listing,
    member,
    membership,
    plan,
    stream,
    stream_store,
)
from statemachines.shared_subscriptions.agent_process import BORROWERS
from statemachines.shared_subscriptions.borrower import LeaseEnded
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import Commit, Committed, Properties, StoredRecord
from statemachines.shared_subscriptions.handler_process import HANDLER
from statemachines.shared_subscriptions.message import END_OF_STREAM, LeaderWanted, RevokeFinished, UpdateProgress
from statemachines.shared_subscriptions.session import Dismiss
from statemachines.shared_subscriptions.stream import Uninstall
from statemachines_sim.devices import remote_store as store
from statemachines_sim.fault import Fault
from statemachines_sim.judge import Judge, Violation
from statemachines_sim.scenario import Net, Phases
from statemachines_sim.shared_subscriptions import GroupLoad, GroupWatch, Members
from statemachines_sim.shared_subscriptions import scenario as scenario_of
from statemachines_sim.shared_subscriptions.monitors.statuses import Statuses
from statemachines_sim.units import S
from statemachines_sim.world import World

SHORT = scenario_of(
    "short",
    load=GroupLoad(topics=4, messages=600, batch=10),
    members=Members(consumers=2, join_s=(5.0,)),
    network=Net(tail=0.0),
    phases=Phases(safety_s=15.0, liveness_s=40.0),
)


def with_own(scenario, **keys):
    return replace(scenario, own=replace(scenario.own, **keys))


LONG = replace(SHORT, phases=Phases(safety_s=40.0, liveness_s=40.0))
SILENT = with_own(SHORT, load=GroupLoad(topics=4, messages=0))
LEAVING = with_own(SHORT, members=Members(consumers=3, leave_s=(6.0,)))
ROTATING = with_own(SHORT, load=replace(SHORT.own.load, rotate_s=(4.0, 8.0), work_ms=(150, 300)))
STRAYS = with_own(SHORT, subscription="$shared/workers/+", load=replace(SHORT.own.load, stray=100))
LEAVING_LATE = with_own(SHORT, members=Members(consumers=2, leave_s=(8.0,)))
EVEN = with_own(SHORT, members=Members(consumers=4))
PATIENT = with_own(EVEN, configuration=Configuration(revoke_timeout_ms=1_000_000))

CRASH = (Fault("crash", 4 * S, 30 * S, "consumer-1"),)
LOST_DISK = (Fault("lost_disk", 14 * S, S, "consumer-1"),)
LEADER_CRASH = (Fault("leader_crash", 14_900 * MS, S, "leader-1"),)
CUT = tuple(Fault("partition", at * S, 7 * S, "leader-1", "consumer-1") for at in (3, 16))
MUTE = tuple(Fault("partition", 13_300 * MS, 600 * MS, f"consumer-{n}", "leader-1") for n in (1, 2, 3))
TORN = tuple(Fault("torn_write", at * S, 2 * S, "group_store") for at in (3, 7, 11))
SLOW_COMMIT = (Fault("slow_store", 4 * S, 2 * S, "group_store", rate=1.0, amount=25 * S),)
MUTE_LEAVER = (Fault("partition", 7_400 * MS, 590 * MS, "consumer-1", "leader-1"),)
SLOW_LEAVER = (Fault("slow_consumer", 2 * S, 30 * S, "consumer-1", amount=1_000),)


def with_rows(fsm, change):
    """The machine, declared anew with rows that `change` gives for each row."""
    return Fsm(
        fsm.name,
        record=fsm.record_type,
        states=type(fsm.initial),
        initial=fsm.initial,
        final=fsm.final,
        rows=tuple(one for row in fsm.declared for one in change(row)),
        timers=fsm.timers,
        children=fsm.children,
        key=fsm.key,
        invariants=fsm.invariants,
    )


# -- planted bugs ---------------------------------------------------------------------------------------------------


def progress_ends_a_revoke(patch):
    """A progress that is not final returns revoking to granted."""

    def change(row):
        if row.source is assignment.REVOKING and row.on is UpdateProgress and row.when is None:
            return (Row(row.on, row.source, assignment.GRANTED, row.do, None, row.clause),)
        return (row,)

    patch.setattr(plan, "ASSIGNMENT", with_rows(assignment.ASSIGNMENT, change))


def status_changed_in_passing(patch):
    """A stream that is being revoked is granted again without any row."""
    keep = borrower.keep
    patch.setattr(borrower, "keep", lambda record, before, after: keep(record, before, granted_again(after)))


def granted_again(record):
    return replace(record, status=stream.GRANTED) if record.status is stream.REVOKING else record


def commits_without_conditions(patch):
    put = claim.put_batch

    def unconditional(*args, **kwargs):
        record, (asked,) = put(*args, **kwargs)
        return record, (replace(asked, request=replace(asked.request, expect=())),)

    patch.setattr(claim, "put_batch", unconditional)


def torn_batches_are_kept(patch):
    patch.setattr(store, "recover", lambda state, undo: state)


def ended_streams_are_granted_again(patch):
    keep = listing.learn

    def learn(record, event):
        known = {stream: 0 if at == END_OF_STREAM else at for stream, at in record.loaded.items()}
        return keep(replace(record, loaded=Map(known)), event)

    patch.setattr(listing, "learn", learn)


def reports_are_not_taken(patch):
    """The last report of a stream is lost, and its repetition with a ping is not heard."""
    patch.setattr(membership, "take_report", lambda draft, ping, report: False)


def last_words_are_not_heard(patch):
    patch.setattr(membership, "take_last_word", lambda draft, report: None)


def validity_is_too_long(patch):
    patch.setattr(
        member, "set_silence_timer", lambda record, now: SetTimer("expiry", now + 12 * S, record.link.borrower)
    )


def nothing_is_uninstalled(patch):
    """The session goes on under a borrower that has ended itself."""
    take = ProcessTurn._run

    def deaf(self, events, *rest):
        take(self, [one for one in events if not isinstance(one[1], Uninstall | LeaseEnded | Dismiss)], *rest)

    patch.setattr(ProcessTurn, "_run", deaf)


def generations_at_once(patch):
    """Every generation is shared as soon as it is listed."""
    opened = listing.open_ranks

    def all_of_them(record):
        record = opened(record)
        for _ in range(3):
            hidden = {key: replace(rank, live=0) if rank.open else rank for key, rank in record.ranks.items()}
            shown = opened(replace(record, ranks=Map(hidden), generation=99))
            lives = {key: replace(rank, live=record.ranks[key].live) for key, rank in shown.ranks.items()}
            record = replace(shown, ranks=Map(lives), generation=record.generation)
        return record

    patch.setattr(listing, "open_ranks", all_of_them)


def everything_matches(patch):
    patch.setattr(stream_store, "matches", lambda topic_filter, topic: True)


def leader_asked_for_elsewhere(patch):
    """One consumer has the wrong address."""

    def wanted(record):
        to = "nowhere-1" if record.id.startswith("consumer-2") else record.registries[0]
        return record, (Send(to, LeaderWanted(record.id, record.group, record.filter)),)

    patch.setattr(borrower, "make_leader_wanted", wanted)


def confirmations_of_nothing(patch):
    """What was revoked is confirmed under a number that never was."""
    patch.setattr(
        stream,
        "confirm",
        lambda link, name, grant: Send(
            link.leader, RevokeFinished(link.borrower, link.epoch, link.registration, name, 0)
        ),
    )


def unsubscribing_without_end(patch):
    def change(row):
        if row.on is borrower.UnsubscribeTimer and isinstance(row, Row):
            return (Ignore((row.on,), row.source, row.clause),)
        return (row,)

    patch.setitem(HANDLER.kinds, BORROWERS.name, replace(BORROWERS, fsm=with_rows(borrower.BORROWER, change)))


def validity_below_the_ping_interval(patch):
    patch.setattr(
        member, "set_silence_timer", lambda record, now: SetTimer("expiry", now + 900 * MS, record.link.borrower)
    )


def dead_members_are_kept(patch):
    patch.setattr(
        member, "set_silence_timer", lambda record, now: SetTimer("expiry", now + 10**15, record.link.borrower)
    )


def a_timer_a_message(patch):
    def heard_until(record, now):
        return SetTimer("expiry", now + 60 * S, f"{record.link.borrower} at {now}")

    patch.setattr(member, "set_silence_timer", heard_until)


BUGS = [
    ("S9", generations_at_once, ROTATING, ()),
    ("S1", progress_ends_a_revoke, SHORT, ()),
    ("S1", status_changed_in_passing, SHORT, ()),
    ("S3", commits_without_conditions, LONG, SLOW_COMMIT),
    ("S3", torn_batches_are_kept, SHORT, TORN),
    ("S8", ended_streams_are_granted_again, SHORT, LEADER_CRASH),
    ("S10", reports_are_not_taken, SHORT, MUTE),
    ("S13", last_words_are_not_heard, LEAVING_LATE, MUTE_LEAVER),
    ("S11", validity_is_too_long, LONG, CRASH),
    ("S11", nothing_is_uninstalled, LONG, CUT),
    ("S12", everything_matches, STRAYS, ()),
    ("L1", leader_asked_for_elsewhere, SILENT, ()),
    ("L3", confirmations_of_nothing, PATIENT, ()),
    ("L7", unsubscribing_without_end, LEAVING, SLOW_LEAVER),
    ("L8", validity_below_the_ping_interval, SILENT, ()),
    ("L9", dead_members_are_kept, EVEN, LOST_DISK),
    ("L10", a_timer_a_message, SHORT, ()),
]


def run(scenario, schedule, seed, ends=False):
    world = World(scenario, seed, schedule=schedule)
    if ends:
        world.env.timeout(13_600 * MS).callbacks.append(lambda event: end_streams(world))
    return world.run()


def end_streams(world):
    """Everything is published by now; the streams have an end."""
    streams = world.devices[stream_store.SERVICE]
    ended = {name: replace(stored, ended=True) for name, stored in streams.state.by_id.items()}
    streams.state = replace(streams.state, by_id=Map(ended))


@pytest.mark.parametrize(("name", "plant", "scenario", "schedule"), BUGS)
def test_a_planted_bug_is_caught_by_its_monitor(monkeypatch, name, plant, scenario, schedule):
    plant(monkeypatch)
    ends = name in ("S8", "L3")
    found = (run(scenario, schedule, seed, ends).monitor for seed in range(4))
    assert name in found, "in none of four runs"


@pytest.mark.parametrize(
    ("scenario", "schedule", "ends"),
    [
        (LONG, SLOW_COMMIT, False),
        (SHORT, TORN, False),
        (SHORT, LEADER_CRASH, True),
        (SHORT, MUTE, False),
        (LONG, CRASH, False),
        (EVEN, LOST_DISK, False),
        (LONG, CUT, False),
        (STRAYS, (), False),
        (SILENT, (), False),
        (PATIENT, (), True),
        (LEAVING, SLOW_LEAVER, False),
    ],
)
def test_without_a_bug_all_monitors_are_silent(scenario, schedule, ends):
    outcome = run(scenario, schedule, 0, ends)
    assert outcome.is_held, outcome


def test_what_is_on_its_way_is_what_was_sent_and_did_not_arrive_yet():
    world = World(SHORT, 1, schedule=())
    seen = set()
    for step in range(300):
        world.env.run(until=(step + 1) * 7 * MS)
        sent = {row[10]: (row[3], row[9]) for row in world.rows if row[4] == "send"}
        arrived = {row[10] for row in world.rows if row[4] in ("deliver", "drop")}
        under_way = {pair for msg, pair in sent.items() if msg not in arrived}
        assert world.network.in_flight() == under_way
        seen |= under_way
    assert len(seen) > 3


@pytest.mark.parametrize(("destroyed", "said"), [(True, None), (False, "S3")])
def test_S3_progress_is_removed_without_the_claim_only_of_a_group_that_is_marked(destroyed, said):
    properties = StoredRecord(Properties(0, 1000, 2000, 15000, destroyed=destroyed), 1)
    batch = Commit(1, (("/1.1/g/#:properties", properties),), (("/1.1/g/#:progress:0.0/a", None),))
    watch = GroupWatch(Configuration())
    try:
        watch.observe_request("group_store", "c1~1/declare-1", batch, (Committed(1, 2),), 2)
        found = None
    except Violation as violation:
        found = violation.monitor
    assert found == said


def test_S1_a_borrower_that_is_called_as_a_stream_is_judged_by_its_own_machine():
    judge = Judge()
    statuses = Statuses(judge)
    for fsm in (assignment.ASSIGNMENT, member.MEMBER):
        for source, dest in pairwise(type(fsm.initial)):
            row = next(line.number for line in fsm.lines if source in line.sources and line.dest is dest)
            record = SimpleNamespace(status=dest)
            step = SimpleNamespace(fsm=fsm, instance="0.0/a", row=row, source=source, dest=dest, record=record)
            statuses.observe_child("leader-1~1/1", step)

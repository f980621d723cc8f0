"""Every monitor catches a bug that is planted for it, and is silent without the bug.

Consumers that lie in any field of any message, in the simulator: what they say of their own is not held against the
protocol, and what becomes of others is.

False fail-overs: in a quiet hour, and while a leader host stands still for 2 s, nobody else takes the lead.

A member that has lost the stream store alone, in the simulator: its streams go to members that can read.

Lives that come twice, in the simulator: whichever process hears what is for either, no two of a name deliver one
stream; where an Agent speaks for the other life, S15 breaks, and where ids do not tell the two apart, S1 does.
"""

from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from statemachines.kernel import Fsm, Ignore, Map, RemoteProtocolError, Row, Send, SetTimer
from statemachines.kernel.turn import ProcessTurn
from statemachines.shared_subscriptions import (
    agent_process,
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
from statemachines.shared_subscriptions.registry import REGISTRY_MACHINE
from statemachines.shared_subscriptions.session import Dismiss
from statemachines.shared_subscriptions.stream import Uninstall
from statemachines_sim.devices import remote_store as store
from statemachines_sim.fault import Fault
from statemachines_sim.judge import Judge, Violation
from statemachines_sim.scenario import Net, Phases, find_scenario
from statemachines_sim.shared_subscriptions import GroupLoad, leader_host, scenario
from statemachines_sim.shared_subscriptions import scenario as scenario_of
from statemachines_sim.shared_subscriptions.monitors.progress import Progress
from statemachines_sim.shared_subscriptions.monitors.statuses import Statuses
from statemachines_sim.shared_subscriptions.section import Members
from statemachines_sim.shared_subscriptions.watch import GroupWatch, list_leaders
from statemachines_sim.units import S
from statemachines_sim.world import World
from statemachines_spec.bug import change_rows, plant_bug

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


SCENARIO = find_scenario("shared_subscriptions/forgers")
LIARS = tuple(Fault("forge", at * S, 9 * S, f"consumer-{at % 2 + 1}", rate=0.5) for at in range(3, 34, 5))
"""Consumers 1 and 2 lie, 3 and those who join do not."""


def run_of_forgers(seed=1, schedule=LIARS):
    return World(SCENARIO, seed, schedule=schedule).run()


@pytest.fixture
def lies(monkeypatch):
    """How many lies were told, by the kind of the message."""
    told, hit = Counter(), GroupWatch.hit

    def counted(watch, kind, node, sender, to, message, now_ns):
        told[type(message).__name__] += kind == "forge"
        hit(watch, kind, node, sender, to, message, now_ns)

    monkeypatch.setattr(GroupWatch, "hit", counted)
    return told


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_liars_cost_nobody_else_a_message(seed, lies):
    outcome = run_of_forgers(seed)
    assert outcome.is_held, outcome
    assert outcome.faults == {"forge": len(LIARS)}
    assert sum(lies.values()) > 100
    assert {"LeaderWanted", "Ping", "UpdateProgress"} <= set(lies)


@pytest.mark.long
def test_the_same_seed_lies_the_same():
    worlds = [World(SCENARIO, 2, schedule=LIARS[:3], data=True) for _ in range(2)]
    for world in worlds:
        world.run(until_ns=12 * S)
    assert worlds[0].rows == worlds[1].rows


def test_who_stops_lying_says_what_is_so(lies):
    world = World(SCENARIO, 3, schedule=(Fault("forge", 3 * S, 2 * S, "consumer-1", rate=1.0),))
    world.run(until_ns=5 * S + 1)
    told = sum(lies.values())
    world.run(until_ns=20 * S)
    assert sum(lies.values()) == told > 0
    assert world.watch.liars


def test_S16_breaks_where_the_progress_of_a_liar_is_believed():
    with plant_bug("shared_subscriptions/progress-believed"):
        assert run_of_forgers().monitor == "S16"


def test_who_speaks_for_others_is_not_heard_and_others_suffer_where_it_is(monkeypatch):
    monkeypatch.setattr(leader_host, "check_sender", lambda sender, to, message, is_leader_host: None)
    outcome = run_of_forgers(3)
    assert (outcome.monitor, "[SS-277]" in outcome.detail) == ("RemoteProtocolError", True)


def test_what_another_owns_is_not_a_liar_s_to_speak_of(monkeypatch):
    def owns(record, borrower, stream, grant):
        return stream in record.assignments

    monkeypatch.setattr(membership, "owns", owns)
    assert run_of_forgers().monitor


def test_a_message_that_is_none_of_an_honest_one_ends_the_run():
    """What the protocol does not take is dropped where a liar said it, and an error where somebody else did."""
    with ExitStack() as stack:
        change_rows(REGISTRY_MACHINE, "start_leader", do=refuse)(stack)
        assert run_of_forgers(schedule=()).monitor == "RemoteProtocolError"


def refuse(record, event, now_ns):
    raise RemoteProtocolError("registry", "-", "leader_wanted", "", "nobody")


@pytest.mark.long
def test_S6_is_judged_of_all_but_what_a_liar_was_granted():
    """Without its word a loss that a liar has brought about would be held against the protocol."""
    held = Progress.say
    try:
        Progress.say = lambda self, stream, progress: None
        found = {run_of_forgers(seed).monitor for seed in range(4)}
    finally:
        Progress.say = held
    assert "S6" in found


def test_S17_breaks_where_any_word_of_a_stranger_is_believed(monkeypatch):
    monkeypatch.setattr(
        agent_process, "is_believed", lambda record, sender, message: message.__class__.__name__ != "Grant"
    )
    pretends = tuple(Fault("pretend", at * S, 0, "consumer-1") for at in range(5, 30, 5))
    assert World(find_scenario("shared_subscriptions/pretenders"), 4, schedule=pretends).run().monitor == "S17"


HOUR = scenario(
    "hour",
    load=GroupLoad(messages=0),
    members=Members(consumers=2, leaders=2),
    configuration=Configuration(),
    phases=Phases(safety_s=3_600, liveness_s=10),
)
"""With the default times, over the default network: some messages are late."""


def count_leaders(seconds, schedule=()):
    """How many leaders had the claim of the group, one after the other."""
    world = World(HOUR, 3, schedule=schedule)
    outcome = world.run(until_ns=seconds * S)
    assert not outcome.monitor, outcome
    return len(world.watch.commits.named)


def stand_still(seconds, for_ns):
    """Both leader hosts stand still, one after the other, again and again, each time later within a second."""
    return tuple(
        Fault("pause", at * S + at * S // 970 % S, for_ns, f"leader-{1 + at // 10 % 2}")
        for at in range(30, seconds, 10)
    )


@pytest.mark.long
def test_SS_127_a_quiet_hour_has_no_false_fail_over():
    assert count_leaders(3_600) == 1


@pytest.mark.long
@pytest.mark.parametrize("tenths", [20, 24])
def test_SS_127_a_leader_that_stands_still_for_two_seconds_leads_on(tenths):
    """More than 200 times, at any moment between two heartbeats."""
    pauses = stand_still(2_200, tenths * S // 10)
    assert len(pauses) > 200
    assert count_leaders(2_200, pauses) == 1


def test_one_that_stands_still_for_longer_than_its_claim_is_followed():
    assert count_leaders(120, stand_still(120, 9 * S)) > 1


MEMBERS_WITHOUT_STORE_SCENARIO = find_scenario("shared_subscriptions/unreadable")
LASTING = replace(MEMBERS_WITHOUT_STORE_SCENARIO, faults={}, phases=Phases(safety_s=60.0, liveness_s=60.0))
CONSUMERS = tuple(f"consumer-{number}" for number in range(1, 6))


def cut(*consumers):
    """From the sixth second until everything heals these read nothing."""
    return World(LASTING, 4, schedule=tuple(Fault("unreadable", 6 * S, 1_000 * S, one) for one in consumers))


def owners(world):
    """Who is granted streams, and the leader."""
    (leader,) = list_leaders(world.processes)
    return {one.link.borrower.partition("~")[0] for one in leader.assignments.values()}, leader


@pytest.mark.long
@pytest.mark.parametrize("unread", [CONSUMERS[:1], CONSUMERS[:4]])
def test_SS_292_streams_go_to_those_that_can_read_for_as_long_as_it_lasts(unread):
    world = cut(*unread)
    for second in (25, 40, 55):
        world.run(until_ns=second * S)
        assert owners(world)[0] == set(CONSUMERS) - set(unread)
    assert not world.watch.list_unacknowledged()
    assert world.run().is_held
    assert owners(world)[0] == set(CONSUMERS)


@pytest.mark.long
def test_SS_293_where_no_member_can_read_nobody_asks_for_streams():
    world = cut(*CONSUMERS)
    world.run(until_ns=25 * S)
    before = len(world.rows)
    world.run(until_ns=35 * S)
    said = [row[5] for row in world.rows[before:]]
    assert not {"leader_wanted", "grant", "ping"} & set(said)
    assert said.count("fetch_failed") in range(12, 19)
    assert world.run().is_held


def test_L2_breaks_where_a_member_that_cannot_read_keeps_its_streams():
    with plant_bug("shared_subscriptions/unreadable-streams-kept"):
        outcome = cut("consumer-1").run()
    assert outcome.monitor == "L2", outcome


SHIPPED = find_scenario("shared_subscriptions/twins")
ALONE = replace(SHIPPED, own=replace(SHIPPED.own, members=Members(consumers=1)))
"""Of two sessions that deliver one stream here both are of one name."""
TWINS = tuple(Fault("twin", at * S, 8 * S, "consumer-1") for at in range(5, 30, 10))


def fault_rows(world):
    return [(row[5], row[1]) for row in world.rows if row[4] == "fault"]


@pytest.mark.long
@pytest.mark.parametrize("scenario", [SHIPPED, ALONE], ids=("shipped", "alone"))
@pytest.mark.parametrize("seed", range(3))
def test_S15_lives_that_come_twice_cost_no_message(scenario, seed):
    outcome = World(scenario, seed).run()
    assert outcome.is_held, outcome
    assert outcome.faults["twin"] > 3


@pytest.mark.long
def test_who_is_a_twin_already_gets_no_other():
    world = World(ALONE, 1, schedule=(TWINS[0], replace(TWINS[0], at_ns=6 * S)))
    assert world.run().faults == {"twin": 1}


def test_what_is_for_the_first_reaches_either_and_what_is_for_the_second_that_one_alone():
    world = World(ALONE, 1, schedule=TWINS[:1])
    world.run(until_ns=5 * S + 1)
    (first,), second = world.earlier_lives["consumer-1"], world.processes["consumer-1"]
    heard = []
    for process in (first, second):
        process.receive = lambda packet, process=process: heard.append((process.life, packet[4], packet[5] % 2))
    world.run(until_ns=9 * S)
    of_first = {(life, odd) for life, to, odd in heard if to.startswith(f"{first.life}/")}
    assert of_first == {(first.life, 1), (second.life, 0)}
    assert {life for life, to, _ in heard if to.startswith(f"{second.life}/")} == {second.life}


def test_a_twin_that_the_run_leaves_behind_ends_when_everything_heals():
    late = (Fault("twin", 39 * S, 60 * S, "consumer-1"), Fault("twin", 39 * S, 60 * S, "leader-1"))
    world = World(ALONE, 2, schedule=late)
    outcome = world.run()
    assert outcome.is_held, outcome
    assert not world.earlier_lives
    assert {("end_twin", "consumer-1"), ("end_twin", "leader-1")} <= {*fault_rows(world)}


@pytest.mark.long
def test_S15_breaks_where_one_life_says_of_the_other_that_it_is_gone():
    with plant_bug("shared_subscriptions/speaks-for-other-life"):
        found = [World(ALONE, seed, schedule=TWINS).run().monitor for seed in range(3)]
    assert "S15" in found, found


def test_S1_breaks_where_ids_do_not_tell_the_two_apart():
    with plant_bug("shared_subscriptions/lives-not-told-apart"):
        assert World(ALONE, 1, schedule=TWINS).run().monitor == "S1"

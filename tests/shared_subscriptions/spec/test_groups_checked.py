"""What leaders come to once faults have stopped (L4, L6, L9); resets come of faults only (L8): all can break.

Streams in generations, streams that the store drops, stores that fail: each property can break, and then it does.

The witness before the borrower, explored: liars, reads that come late, a store that was put back (S17).

What leader and borrower know of each other (S10), what is left of who is gone (S11), timers (L10): all can break.

Answers to pings that come twice, and late: one to an earlier ping confirms no report and brings no lease.

Consumers and leader hosts of the systems run the shipped processes: a mistake in their tables is found.

Systems in which hosts and applications are told something: groups declared and destroyed, private subscriptions.
"""

from contextlib import ExitStack

import msgspec
import pytest
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    CancelTimer,
    Delegate,
    Ignore,
    Row,
    SetTimer,
    is_fresh,
    node_of,
)
from statemachines.shared_subscriptions import (
    agent_process,
    assignment,
    claim,
    configuration,
    listing,
    member,
    membership,
    returned_messages,
)
from statemachines.shared_subscriptions.agent_process import AGENT_MACHINE, is_for_living
from statemachines.shared_subscriptions.assignment import ASSIGNMENT, Vanish
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines.shared_subscriptions.configuration import Doubt, RestTimer, StoreFailed, is_believed, is_misled
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.member import MEMBER
from statemachines.shared_subscriptions.message import (
    Grant,
    Invalidate,
    LeaderConnectResponse,
    PingResponse,
)
from statemachines.shared_subscriptions.registry import REGISTRY_MACHINE
from statemachines_spec.bug import change_rows, plant_bug, redeclare, replace_call, wrap_call
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.replay import replay
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions import (
    SPEC,
    application_systems,
    declaration_systems,
    deliveries,
    private_systems,
    systems,
)
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.quiescent_properties import number_of
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, build, obligations_of, system
from statemachines_spec.shared_subscriptions.variants import borrower
from statemachines_spec.shared_subscriptions.witness_consumer import LIAR, Lie, WitnessedConsumer

CRASH = GroupSetting(consumers=1, crashes=1)
FAIL_OVER = GroupSetting(
    consumers=1, lives=3, leader_crashes=1, host_lives=2, epochs=2, claims_age=True, renews=True
)  # fmt: skip
SHARED = GroupSetting(topics=2, grants=4)
EXPIRES = GroupSetting(consumers=1, lives=2, timeouts=1, registrations=3)


def explored(setting):
    return explore(build("here", "", setting), engine="plain", hashing=False)


def met(setting, *starting):
    """Obligation -> what came of it, of those whose name starts so."""
    one = build("here", "", setting)
    chosen = [each for each in obligations_of(one) if each.name.startswith(starting)]
    return {result.name: result for result in live(one, chosen)}


def test_a_number_is_read_from_an_id():
    assert number_of("consumer-1~1/12") == 12


# -- L4 -------------------------------------------------------------------------------------------------------------


def test_a_leader_that_takes_nothing_back_rests_where_it_is_not_fair():
    with plant_bug("nothing-taken-back"):
        result = explored(SHARED)
    assert result.path.broken == "L4 at rest"


@pytest.mark.long
def test_the_streams_of_whoever_has_expired_are_shared_again():
    results = met(EXPIRES, "L4", "L9")
    assert all((result.is_held, result.bounded) == (True, 0) for result in results.values())
    assert results["L4 leader-1"].open_states > 0


def test_a_leader_that_never_shares_again_leaves_them_unshared():
    def expire_only(record, event, now_ns):
        with ExitStack() as stack:
            replace_call(membership, "reassign", lambda draft: None)(stack)
            return membership.expire(record, event, now_ns)

    with ExitStack() as stack:
        change_rows(LEADER, "expire", do=Delegate(expire_only))(stack)
        results = met(EXPIRES, "L4")
    assert not results["L4 leader-1"].is_held


# -- L6 -------------------------------------------------------------------------------------------------------------


def test_after_a_crash_somebody_leads_again():
    results = met(FAIL_OVER, "L1", "L6")
    assert all((result.is_held, result.bounded) == (True, 0) for result in results.values())
    assert results["L6"].open_states > 0


@pytest.mark.long
def test_a_leader_that_never_takes_an_old_claim_leaves_everybody_alone():
    def only_unclaimed(record, event):
        return event.n == record.load_n and event.records[0] is None

    with ExitStack() as stack:
        change_rows(LEADER, "take", when=only_unclaimed)(stack)
        results = met(FAIL_OVER, "L1", "L6")
    assert not results["L6"].is_held
    assert not results["L1 consumer-1"].is_held


# -- L8 -------------------------------------------------------------------------------------------------------------


LEAVING = ("unsubscribe", "idle-stop", "fire-and-forget", "leaving")
"""There consumers unsubscribe, which looks like a reset from outside."""

KICKED = ("lies", "two-lies")
"""There they say what the store does not cover, and are kicked for it."""


PUT_BACK = ("restored-claim",)
"""There a store forgets who leads, and whoever follows that begins anew."""


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in (*LEAVING, *KICKED, *PUT_BACK, "election")])
def test_every_system_says_how_many_resets_its_faults_explain(name):
    about, sizes = SYSTEMS[name]
    one = build(name, about, replace(GroupSetting(), **sizes["small"]))
    assert "L8" in [each.name for each in one.properties]


# -- L9 -------------------------------------------------------------------------------------------------------------


def test_whoever_is_dead_is_gone_at_last():
    (result,) = met(CRASH, "L9").values()
    assert (result.is_held, result.bounded) == (True, 0)
    assert result.open_states > 0


def test_a_lapsed_member_whose_lease_end_nobody_waits_for_stays_for_ever():
    with ExitStack() as stack:
        change_rows(MEMBER, "wait_for_lease_end", do=member.invalidate)(stack)
        (result,) = met(CRASH, "L9").values()
    assert not result.is_held
    assert result.way is not None


PAGING = GroupSetting(script=("A", "rotate", "a"), grants=4, topics=2, page=1, asks_travel=True, consumers=1)


def explored_of_generations_checked(name, **changes):
    """A small system in this process; `changes` of its setting."""
    about, sizes = SYSTEMS[name]
    setting = replace(GroupSetting(), **{**sizes["small"], **changes})
    return explore(build(name, about, setting), engine="compiled", hashing=False)


def test_every_stream_that_a_script_makes_is_known_beforehand():
    assert deliveries.streams_of(("a", "b"), ("A", "rotate", "a", "a", "drop")) == (
        "0.0/a", "0.0/b", "0.0/A", "0.1/a",
    )  # fmt: skip


# -- S9 -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_leader_that_believes_the_last_page_breaks_it_where_a_stream_appears_behind_its_back():
    def wrong(learn):
        return lambda record, event: replace(learn(record, event), generation=event.generation)

    with ExitStack() as stack:
        wrap_call(listing, "learn", wrong)(stack)
        one = build("paging", "", PAGING)
        result = explore(one, engine="compiled", hashing=False)
        assert result.path.broken == "S9 leader-1"
        assert replay(one, result.path).broken == "S9 leader-1"


# -- what has vanished ----------------------------------------------------------------------------------------------


def test_a_leader_that_leaves_a_vanished_stream_with_its_owner_is_found():
    def ignored(row):
        return [Ignore((Vanish,), row.source, row.clause)] if isinstance(row, Row) and row.on is Vanish else [row]

    with ExitStack() as stack:
        redeclare(stack, ASSIGNMENT, ignored)
        result = explored_of_generations_checked("vanished")
    assert result.path.broken == "vanished"


# -- stores that fail -----------------------------------------------------------------------------------------------


def test_the_store_fails_in_every_way():
    assert explored_of_generations_checked(
        "store-failures", silences=True, offsets=0, roots=1, lives=1, epochs=1, leaders=1
    ).is_held


def test_a_renewed_claim_that_is_thrown_away_is_not_what_the_store_has():
    with plant_bug("renewed-claim-lost"):
        result = explored_of_generations_checked("store-failures")
    assert result.path.broken == "S3 claim leader-1"


@pytest.mark.parametrize("why", ["not carried out", "carried out"])
def test_a_leader_that_takes_an_open_outcome_for_a_success_or_a_failure_is_found(why):
    def as_done(record, event, now_ns):
        return claim.keep(record, 1, 1, now_ns)

    def as_not_done(record, event, now_ns):
        return replace(record, trial=None), ()

    with ExitStack() as stack:
        change_rows(LEADER, "recheck_later", do=as_done if why == "not carried out" else as_not_done)(stack)
        result = explored_of_generations_checked("store-failures")
    assert result.path.broken in ("S3 claim leader-1", "S3 root leader-1")


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

    return lambda stack: redeclare(stack, configuration.WITNESS, change)


def tells(change):
    """What is kept of the claim that was read."""

    def tell(record, event, now_ns):
        after, effects = configuration.tell_claim(record, event, now_ns)
        return change(record, after, effects)

    return change_rows(configuration.WITNESS, "tell_claim", do=tell)


def forget_of_witness_explored(record, event, now_ns):
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
        row(
            lambda one: one.on is Doubt and one.source is configuration.RESTING,
            to=configuration.ASKING,
            do=configuration.ask,
        ),
    ),
    "doubt forgotten": (
        "lied to",
        "S17",
        row(lambda one: one.on is Doubt and one.source is configuration.RESTING, do=None),
    ),
    "never read again": ("lied to", "S17", row(lambda one: one.on is RestTimer, to=configuration.IDLE, do=None)),
    "a failed read is not repeated": ("unread", "S17", row(lambda one: one.on is StoreFailed, do=None)),
    "a failed read forgets": ("unread", "S17", row(lambda one: one.on is StoreFailed, do=forget_of_witness_explored)),
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


@pytest.mark.long
@pytest.mark.parametrize("where", ["lied to", "unread", "put back"])
def test_S17_without_a_mistake_nothing_breaks(where):
    result = explore(settings()[where])
    assert (result.is_held, result.is_shown) == (True, True)


SLOW = {
    "nobody believed": believed(lambda record, sender, message: False),
    "it rests for ever": row(lambda one: one.on is RestTimer and one.to is configuration.IDLE, to=STAY, do=None),
}


@pytest.mark.long
@pytest.mark.parametrize("mistake", [None, *SLOW])
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


NEW = ("S10 at rest", "L10 at work")


def explored_of_agreement_checked(one):
    """What this process makes of it: a machine changed here is changed nowhere else."""
    return explore(msgspec.structs.replace(one, origin=None), engine="plain", hashing=False)


NOT_HERE = ("election", "restored-claim")
"""The first has no borrowers, and in the second what was agreed on is taken back."""


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in NOT_HERE])
def test_every_system_with_borrowers_declares_them_and_what_shows_that_they_are_not_empty(name):
    properties = [one.name for one in system(name, "small").properties]
    assert {"S11", "S11 deadlines", "L10", *NEW} <= set(properties)
    consumers = [actor.name for actor in system(name, "small").actors if isinstance(actor, Consumer)]
    for consumer in consumers:
        assert any(one.startswith(f"S10 {consumer}") for one in properties)
        assert any(one.startswith(f"S10 progress {consumer}") for one in properties)


@pytest.mark.long
def test_an_assignment_that_goes_back_to_granted_is_a_disagreement():
    with plant_bug("revoking-to-granted"):
        one = system("unsubscribe", "small")
        # S1 breaks earlier, of course.
        one = msgspec.structs.replace(one, properties=tuple(each for each in one.properties if each.name != "S1"))
        result = explored_of_agreement_checked(one)
        assert result.path.broken.startswith("S10 consumer-")
        assert result.path.quiet
        assert replay(one, result.path).broken == result.path.broken


@pytest.mark.long
def test_the_rules_as_written_disagree_before_two_hold_one_stream():
    one = system("late-copies", "small")
    for actor in one.actors:
        if isinstance(actor, Consumer):
            actor.use_machine("borrower", borrower("as_written"))
    result = explored_of_agreement_checked(one)
    assert result.path.broken.startswith("S10 consumer-")
    assert len(result.path.legs) < 21
    assert borrower("settled") is BORROWER


def test_a_report_that_is_never_repeated_is_a_disagreement():
    with plant_bug("last-report-lost"):
        result = explored_of_agreement_checked(build("reports", "", GroupSetting(consumers=1, offsets=1, pings=2)))
    assert result.path.broken.startswith("S10 progress consumer-1")


def test_with_the_report_repeated_it_is_none():
    assert explored_of_agreement_checked(build("reports", "", GroupSetting(consumers=1, offsets=1, pings=2))).is_held


def test_whoever_lapsed_and_is_registered_again_has_an_effect():
    with plant_bug("lapsed-registered-again"):
        result = explored_of_agreement_checked(
            build("late", "", GroupSetting(consumers=1, crashes=1, timeouts=1, network=Network(2)))
        )
    assert result.path.broken == "S11"


def test_a_borrower_without_an_expiry_is_kept_for_ever():
    def no_deadline(record, now_ns):
        return CancelTimer("expiry", record.link.borrower)

    with ExitStack() as stack:
        replace_call(member, "set_silence_timer", no_deadline)(stack)
        result = explored_of_agreement_checked(system("borrower-crash", "small"))
    assert result.path.broken == "S11 deadlines"


def test_a_timer_for_what_is_granted_is_one_too_many():
    def keep_and_arm(record, event, now_ns):
        after, _ = assignment.keep(record, event, now_ns)
        return after, (SetTimer("resend", record.resend_ns, record.stream),)

    with ExitStack() as stack:
        change_rows(assignment.ASSIGNMENT, "keep", do=keep_and_arm)(stack)
        result = explored_of_agreement_checked(system("borrower-crash", "small"))
    assert result.path.broken == "L10"


def explored_of_old_answers(size):
    """In this process alone, where the bug is planted."""
    one = replace(system("old-answers", size), origin=None)
    return one, explore(one, hashing=False)


def test_SS_24_an_old_answer_changes_nothing():
    _, result = explored_of_old_answers("small")
    assert result.is_held
    assert not [name for name, times in result.sometimes.items() if not times]


PROCESS_SYSTEMS_MISTAKES = {
    "SS-244": ("late-copies", lambda stack: change_rows(AGENT_MACHINE, "hear", do=None)(stack)),
    "SS-220": ("idle-stop", lambda stack: change_rows(REGISTRY_MACHINE, "forget_leader", do=None)(stack)),
}


@pytest.mark.parametrize("clause", PROCESS_SYSTEMS_MISTAKES)
def test_a_mistake_in_the_table_of_a_process_is_found_by_exploring(clause):
    name, plant = PROCESS_SYSTEMS_MISTAKES[clause]
    with ExitStack() as stack:
        plant(stack)
        result = explore(replace(systems.system(name, "small"), origin=None), engine="plain")
    assert not (result.is_held and result.is_shown)


NAMES = (*declaration_systems.ABOUT, *private_systems.ABOUT, *application_systems.ABOUT)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_told_holds_and_is_told_at_last(name):
    made = SPEC.system(name)
    found = explore(made, engine="plain", hashing=False)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]
    assert all(one.is_held for one in live(SPEC.system(name), SPEC.obligations(made), engine="plain"))


def test_L13_a_task_that_nobody_tells_waits_for_itself(monkeypatch):
    monkeypatch.setattr(returned_messages, "find_awaited", lambda reading, offset: None)
    found = explore(application_systems.build("application-waits"), engine="plain", hashing=False)
    assert found.path.broken.startswith("L13")

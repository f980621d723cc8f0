"""What leader and borrower know of each other (S10), what is left of who is gone (S11), timers (L10): all can break."""

from __future__ import annotations

from contextlib import ExitStack

import msgspec
import pytest

from statemachines.kernel import CancelTimer, SetTimer
from statemachines.shared_subscriptions import assignment, member
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines_spec.bug import change_rows, plant_bug, replace_call
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.replay import replay
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, build, system
from statemachines_spec.shared_subscriptions.variants import borrower

NEW = ("S10 at rest", "L10 at work")


def explored(one):
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


def test_an_assignment_that_goes_back_to_granted_is_a_disagreement():
    with plant_bug("revoking-to-granted"):
        one = system("unsubscribe", "small")
        # S1 breaks earlier, of course.
        one = msgspec.structs.replace(one, properties=tuple(each for each in one.properties if each.name != "S1"))
        result = explored(one)
        assert result.path.broken.startswith("S10 consumer-")
        assert result.path.quiet
        assert replay(one, result.path).broken == result.path.broken


def test_the_rules_as_written_disagree_before_two_hold_one_stream():
    one = system("late-copies", "small")
    for actor in one.actors:
        if isinstance(actor, Consumer):
            actor.use_machine("borrower", borrower("as_written"))
    result = explored(one)
    assert result.path.broken.startswith("S10 consumer-")
    assert len(result.path.legs) < 21
    assert borrower("settled") is BORROWER


def test_a_report_that_is_never_repeated_is_a_disagreement():
    with plant_bug("last-report-lost"):
        result = explored(build("reports", "", GroupSetting(consumers=1, offsets=1, pings=2)))
    assert result.path.broken.startswith("S10 progress consumer-1")


def test_with_the_report_repeated_it_is_none():
    assert explored(build("reports", "", GroupSetting(consumers=1, offsets=1, pings=2))).is_held


def test_whoever_lapsed_and_is_registered_again_has_an_effect():
    with plant_bug("lapsed-registered-again"):
        result = explored(build("late", "", GroupSetting(consumers=1, crashes=1, timeouts=1, network=Network(2))))
    assert result.path.broken == "S11"


def test_a_borrower_without_an_expiry_is_kept_for_ever():
    def no_deadline(record, now_ns):
        return CancelTimer("expiry", record.link.borrower)

    with ExitStack() as stack:
        replace_call(member, "set_silence_timer", no_deadline)(stack)
        result = explored(system("borrower-crash", "small"))
    assert result.path.broken == "S11 deadlines"


def test_a_timer_for_what_is_granted_is_one_too_many():
    def keep_and_arm(record, event, now_ns):
        after, _ = assignment.keep(record, event, now_ns)
        return after, (SetTimer("resend", record.resend_ns, record.stream),)

    with ExitStack() as stack:
        change_rows(assignment.ASSIGNMENT, "keep", do=keep_and_arm)(stack)
        result = explored(system("borrower-crash", "small"))
    assert result.path.broken == "L10"

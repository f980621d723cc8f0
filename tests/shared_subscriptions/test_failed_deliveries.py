"""Failed deliveries: what the leader counts, and what becomes of a message that failed too often (SS-340 to SS-344)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_leader import CONFIGURATION, Bench, declared, only

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions import message
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped, StreamParked
from statemachines.shared_subscriptions.group_store import FailingMessage, StoredRecord

COUNTING = replace(CONFIGURATION, count_deliveries=True)
TWICE = replace(COUNTING, max_deliver=2)
STREAM = "1.0/t00000"
KEY = f"/1.1/g/#:progress-failing:{STREAM}"


def led(configuration=COUNTING, **options):
    """A leader of one stream with ten messages, and a member that has it."""
    bench = Bench(1, configuration=configuration, **options).start()
    (grant,) = only(message.Grant, bench.join("c1"))
    bench.ping("c1")
    return bench, grant


def say_in_hand(bench):
    """Its member was handed over the next message, which failed before."""
    for one in bench.record.assignments.values():
        if one.failed:
            said = (STREAM, one.grant, one.progress, False, one.failed, True)
            bench.feed(message.UpdateProgress(one.link.borrower, one.link.epoch, one.link.registration, *said))


def expire(bench, in_hand=True):
    """Its members are dead, and their leases over."""
    if in_hand:
        say_in_hand(bench)
    bench.at(bench.now + 9_000)
    assert not bench.record.members


def granted_next(bench, name="c2"):
    """What the next member is told of the stream."""
    (grant,) = only(message.Grant, bench.join(name))
    bench.ping(name)
    return grant


def say_failed(bench, grant, progress, failed, finished=False, in_hand=False):
    pair = (grant.borrower, grant.epoch, grant.registration)
    return bench.feed(message.UpdateProgress(*pair, grant.stream, grant.grant, progress, finished, failed, in_hand))


def failing(bench):
    found = bench.groups.get(KEY)
    return None if found is None else found.value


def test_SS_340_a_member_that_goes_without_a_word_and_without_progress_failed():
    bench, _ = led()
    for count in (1, 2, 3):
        expire(bench)
        assert failing(bench) == FailingMessage(0, count)
        assert bench.stored(f"progress:{STREAM}") == 0
        assert granted_next(bench, f"d{count}").failed == count


def test_SS_340_a_message_that_is_given_back_failed_whoever_is_next():
    bench, grant = led()
    say_failed(bench, grant, 3, 2)
    bench.at(3_000)
    assert failing(bench) == FailingMessage(3, 2)
    say_failed(bench, grant, 3, 1)
    say_failed(bench, grant, 2, 9)
    expire(bench, in_hand=False)
    assert failing(bench) == FailingMessage(3, 2), "it was not in hand again"
    assert granted_next(bench).failed == 2


@pytest.mark.parametrize("way", ["ping", "disconnect"])
def test_SS_340_reports_and_last_words_say_it_as_well(way):
    bench, grant = led()
    report = message.Report(STREAM, grant.grant, 0, False, 4)
    if way == "ping":
        bench.ping("c1", 2, (report,))
    else:
        bench.feed(message.Disconnect(grant.borrower, 1, 1, (report,)))
    bench.at(3_000)
    assert failing(bench) == FailingMessage(0, 4)


def test_SS_340_the_next_progress_ends_the_count_in_the_same_batch():
    bench, _ = led()
    expire(bench)
    grant = granted_next(bench)
    bench.progress(grant, 1)
    bench.at(bench.now + 2_000)
    batch = next(one for one in reversed(bench.commits) if KEY in dict(one.put))
    assert dict(batch.put)[KEY] is None
    assert dict(batch.put)[f"/1.1/g/#:progress:{STREAM}"] == 1
    assert KEY not in bench.groups
    assert not bench.record.failing


@pytest.mark.parametrize("fails", [False, True])
def test_SS_340_the_count_goes_though_more_progress_follows_before_the_batch(fails):
    bench, _ = led()
    expire(bench)
    grant = granted_next(bench)
    bench.progress(grant, 1)
    if fails:
        bench.down = "before"
        bench.at(bench.now + 1_000)
    bench.progress(grant, 2)
    bench.down = ""
    bench.at(bench.now + 3_000)
    assert (failing(bench), bench.stored(f"progress:{STREAM}")) == (None, 2)


def test_SS_340_the_next_leader_knows_it():
    bench, _ = led()
    expire(bench)
    bench.feed(Halt())
    later = Bench(1, groups=bench.groups, configuration=COUNTING).start()
    assert granted_next(later).failed == 1
    stale = bench.groups.set(KEY, StoredRecord(FailingMessage(7, 5), 1))
    assert granted_next(Bench(1, groups=stale, configuration=COUNTING).start()).failed == 0


def leave(bench, grant):
    bench.feed(message.Disconnect(grant.borrower, 1, 1, (message.Report(STREAM, grant.grant, 0, False),)))


NOT_COUNTED = {
    "a last word": (COUNTING, leave),
    "progress under this grant": (COUNTING, lambda bench, grant: (bench.progress(grant, 1), expire(bench))),
    "nothing to read": (COUNTING, lambda bench, grant: (bench.progress(grant, 10), expire(bench))),
    "nothing is counted": (CONFIGURATION, lambda bench, grant: expire(bench)),
}


@pytest.mark.parametrize("case", NOT_COUNTED)
def test_SS_341_what_is_no_failure_is_not_counted(case):
    configuration, act = NOT_COUNTED[case]
    bench, grant = led(configuration)
    act(bench, grant)
    bench.at(bench.now + 3_000)
    assert failing(bench) is None
    assert granted_next(bench).failed == 0


def test_SS_341_a_message_that_failed_and_was_not_in_hand_again_is_not_counted():
    bench, _ = led(replace(COUNTING, max_deliver=1))
    expire(bench)
    granted_next(bench)
    expire(bench, in_hand=False)
    assert failing(bench) == FailingMessage(0, 1)


@pytest.mark.parametrize("late", [(1, True), (2, False)])
def test_SS_341_a_report_that_comes_late_changes_nothing(late):
    bench, grant = led()
    say_failed(bench, grant, 3, 1)
    say_failed(bench, grant, 3, 2, in_hand=True)
    say_failed(bench, grant, 3, late[0], in_hand=late[1])
    assert (bench.record.assignments[STREAM].failed, bench.record.assignments[STREAM].in_hand) == (2, True)
    say_failed(bench, grant, 3, 3)
    assert (bench.record.assignments[STREAM].failed, bench.record.assignments[STREAM].in_hand) == (3, False)


def test_SS_341_a_grant_that_was_never_answered_is_no_failure():
    bench = Bench(1, configuration=COUNTING).start()
    bench.join("c0")
    leave_now = message.Disconnect("c0~1/1", 1, 1, ())
    bench.feed(leave_now)

    bench.feed(message.LeaderWanted("c1~1/1", "g", "#"))
    expire(bench)
    assert failing(bench) is None


def test_SS_342_what_killed_its_member_alone_is_spent_and_the_first_time_nothing_is():
    bench, grant = led(replace(COUNTING, max_deliver=1))
    assert (grant.failed, grant.most) == (0, 1)
    expire(bench)
    assert failing(bench) == FailingMessage(0, 1), "others may have been in hand"
    grant = granted_next(bench)
    assert (grant.failed, grant.most) == (1, 1)
    expire(bench)
    assert failing(bench) == FailingMessage(0, 2, parked=True, lost=True)
    assert bench.told[-1] == StreamParked("leader-1~1/1", STREAM, 0, 2)
    assert not only(message.Grant, bench.join("c3")), "it is given to nobody"


def test_SS_342_what_is_given_back_too_often_is_taken_back_and_set_aside():
    bench, grant = led(TWICE)
    assert not only(message.Revoke, say_failed(bench, grant, 4, 1))
    (revoke,) = only(message.Revoke, say_failed(bench, grant, 4, 2))
    say_failed(bench, revoke, 4, 2, finished=True)
    bench.feed(message.RevokeFinished(grant.borrower, 1, 1, STREAM, grant.grant))
    assert bench.told[-1] == StreamParked("leader-1~1/1", STREAM, 4, 2)
    assert not bench.record.free
    bench.at(bench.now + 2_000)
    assert failing(bench) == FailingMessage(4, 2, parked=True)


def test_SS_342_a_stream_that_is_parked_stays_so_under_the_next_leader():
    bench, _ = led(replace(COUNTING, max_deliver=1))
    expire(bench)
    granted_next(bench)
    expire(bench)
    bench.feed(Halt())
    later = Bench(1, groups=bench.groups, configuration=TWICE).start()
    assert later.told == [StreamParked("leader-1~1/1", STREAM, 0, 2)]
    assert not only(message.Grant, later.join("c1"))


def test_SS_342_a_late_last_word_lets_a_parked_stream_go_on():
    bench, grant = led(TWICE)
    say_failed(bench, grant, 0, 1)
    say_in_hand(bench)
    bench.progress(grant, 2**62)  # it is kicked for that, and its lease goes on
    assert bench.record.failing[STREAM].parked
    bench.feed(message.Disconnect(grant.borrower, 1, 1, (message.Report(STREAM, grant.grant, 1, False),)))
    assert granted_next(bench).progress == 1
    bench.at(bench.now + 2_000)
    assert failing(bench) is None


def test_SS_342_where_it_is_declared_so_the_message_is_dropped_with_a_word():
    bench, grant = led(replace(TWICE, spent="drop"))
    (revoke,) = only(message.Revoke, say_failed(bench, grant, 4, 2))
    say_failed(bench, revoke, 4, 2, finished=True)
    sent = bench.feed(message.RevokeFinished(grant.borrower, 1, 1, STREAM, grant.grant))
    assert bench.told[-1] == MessageDropped("leader-1~1/1", STREAM, 4, 2, asked=False)
    (grant,) = only(message.Grant, sent)
    assert (grant.progress, grant.failed) == (5, 0)
    bench.at(bench.now + 2_000)
    assert (failing(bench), bench.stored(f"progress:{STREAM}")) == (None, 5)


@pytest.mark.parametrize("spent", ["park", "drop"])
def test_SS_343_a_parked_stream_goes_on_where_somebody_says_so(spent):
    bench, _ = led(replace(COUNTING, max_deliver=1))
    expire(bench)
    granted_next(bench)
    expire(bench)
    bench.join("c3")
    before = bench.now
    if spent == "park":
        skipped = replace(failing(bench), skip=True)
        for value in (replace(skipped, progress=7), replace(skipped, skip=False), skipped):
            bench.groups = bench.groups.set(KEY, StoredRecord(value, bench.now))
            sent = bench.at(before := before + 1_500)
            assert bool(only(message.Grant, sent)) is (value is skipped)
    else:
        bench.feed(Halt())
        bench = Bench(1, groups=bench.groups, configuration=replace(TWICE, spent="drop")).start()
    assert bench.told[-1] == MessageDropped("leader-1~1/1", STREAM, 0, 2, asked=spent == "park")
    bench.at(bench.now + 2_000)
    assert (failing(bench), bench.stored(f"progress:{STREAM}")) == (None, 1)


def test_SS_343_what_was_said_while_nobody_led_counts():
    groups = declared(TWICE).set(KEY, StoredRecord(FailingMessage(0, 2, parked=True, skip=True), 1))
    bench = Bench(1, groups=groups, configuration=TWICE).start()
    assert bench.told == [MessageDropped("leader-1~1/1", STREAM, 0, 2, asked=True)]
    assert granted_next(bench).progress == 1


def test_SS_343_nobody_looks_where_nothing_is_parked():
    bench, _ = led(TWICE)
    bench.at(3_000)
    assert bench.record.parked_n == 0


WRONG = {
    "max_deliver": {"max_deliver": 0},
    "at most": {"max_deliver": 10**7},
    "count_deliveries": {"max_deliver": 3, "count_deliveries": False},
}


@pytest.mark.parametrize("case", WRONG)
def test_SS_344_a_bound_that_is_none_is_refused(case):
    with pytest.raises(ConfigurationError, match=r"max_deliver|count_deliveries"):
        Configuration(**WRONG[case]).check()

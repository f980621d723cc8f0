"""What may have been handed over before is granted, and delivered, as such (SS-440 to SS-442)."""

from __future__ import annotations

import pytest
from test_failed_deliveries import STREAM, expire, granted_next, led
from test_leader import Bench as LeaderBench

from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.message import END_OF_STREAM, Disconnect, Report


def leave(bench, grant, *said):
    reports = (Report(STREAM, grant.grant, *said),) if said else ()
    bench.feed(Disconnect(grant.borrower, grant.epoch, grant.registration, reports))


def finish_and_leave(bench, grant):
    bench.progress(grant, 3, finished=True)
    leave(bench, grant)


ENDS = {
    "it expires": (lambda bench, grant: expire(bench), END_OF_STREAM),
    "it says nothing of the stream": (leave, END_OF_STREAM),
    "it has messages in hand": (lambda bench, grant: leave(bench, grant, 3, False), END_OF_STREAM),
    "it gave a message back and was handed others": (
        lambda bench, grant: leave(bench, grant, 3, True, 1, True),
        END_OF_STREAM,
    ),
    "it gave a message back": (lambda bench, grant: leave(bench, grant, 3, True, 1), 0),
    "it has nothing in hand": (lambda bench, grant: leave(bench, grant, 3, True), 0),
    "it said so before": (finish_and_leave, 0),
}


@pytest.mark.parametrize(("ends", "repeats"), ENDS.values(), ids=ENDS)
def test_SS_440_a_grant_says_what_may_have_been_handed_over_under_earlier_ones(ends, repeats):
    bench, grant = led()
    assert grant.repeats == 0
    ends(bench, grant)
    assert granted_next(bench).repeats == repeats


@pytest.mark.parametrize(("progress", "repeats"), [(9, 10), (10, 0)])
def test_SS_440_a_listing_after_such_a_grant_says_how_far_and_progress_passes_it(progress, repeats):
    bench, _ = led()
    expire(bench)
    bench.at(bench.now + 15_000)
    grant = granted_next(bench)
    assert grant.repeats == END_OF_STREAM, "an earlier listing does not say how far its owner came"
    for n in range(2, 5):
        bench.ping("c2", n)
        bench.at(bench.now + 1_000)
    leave(bench, grant, progress, True)
    assert granted_next(bench, "c3").repeats == repeats


@pytest.mark.parametrize(
    ("expired", "halted", "repeats"), [(False, True, 0), (True, True, END_OF_STREAM), (False, False, END_OF_STREAM)]
)
def test_SS_441_the_next_leader_knows_it_by_the_claim(expired, halted, repeats):
    bench, grant = led()
    if expired:
        expire(bench)
    else:
        leave(bench, grant, 3, True)
    if halted:
        bench.feed(Halt())
    after = LeaderBench(1, groups=bench.groups, node="leader-2", configuration=bench.record.configuration).start()
    after.at(20_000)
    (grant,) = (one for one in after.join("c2") if getattr(one, "stream", "") == STREAM)
    assert grant.repeats == repeats

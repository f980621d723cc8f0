"""SS-91 in the whole leader: a grant is waited for a validity, whatever else its borrower says."""

from __future__ import annotations

from test_believed import Bench
from test_leader import only

from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import Grant, Invalidate, LeaderWanted


def granted():
    """A member that has been granted the only stream, and has not said so."""
    bench = Bench(1).start()
    return bench, only(Grant, bench.feed(LeaderWanted("c1~1/1", "g", "#")))[0]


def ping_until(bench, end_ms):
    """It pings every second, as one that lives."""
    for second in range(1, end_ms // 1_000 + 1):
        if bench.now < second * 1_000 - 1 < end_ms:
            bench.ping("c1", second, at_ms=second * 1_000 - 1)


def test_SS_91_who_pings_and_never_answers_a_grant_is_kicked_after_a_validity():
    bench, _ = granted()
    ping_until(bench, 5_000)
    assert only(Invalidate, bench.at(4_999)) == []
    assert only(Invalidate, bench.at(5_000)) == [Invalidate("c1~1/1", 1, 1)]
    assert not bench.record.assignments


def test_SS_91_its_stream_goes_to_the_others_when_its_lease_has_ended():
    bench, grant = granted()
    ping_until(bench, 5_000)
    bench.join("c2", at_ms=4_999)
    bench.at(4_999)  # what is to be repeated is, by then
    assert only(Grant, bench.at(5_000)) == []
    assert only(Grant, bench.at(8_000)) == [], "its last ping was answered at 4 999 ms, and its lease lasts 3 s"
    (again,) = only(Grant, bench.at(8_100))
    assert (again.stream, again.borrower) == (grant.stream, "c2~1/1")


def test_SS_91_an_answer_that_the_store_is_asked_about_is_one():
    bench, grant = granted()
    bench.kept = []
    bench.feed(bench.said(grant, 11))
    ping_until(bench, 6_000)
    assert only(Invalidate, bench.at(6_000)) == []
    bench.publish("t00000", 1)
    bench.let()
    assert [(one.status.value, one.progress) for one in bench.record.assignments.values()] == [("granted", 11)]
    assert only(Invalidate, bench.at(7_000)) == []


def test_SS_91_a_longer_grant_timeout_is_waited_for():
    assert Configuration(validity_ms=5_000, grant_timeout_ms=9_000).check().grant_wait_ms == 9_000
    assert Configuration(validity_ms=5_000, grant_timeout_ms=4_000).check().grant_wait_ms == 5_000
    assert Configuration(validity_ms=7_000).check().grant_wait_ms == 7_000

"""A listing that says nothing new, and how many streams are asked about at once; the rest stands in
`steps/uncovered_progress.txt`."""

from __future__ import annotations

from test_leader import Bench, only

from statemachines.shared_subscriptions import progress_cover
from statemachines.shared_subscriptions.message import Grant, Report
from statemachines.shared_subscriptions.stream_store import Measured, StreamSize


def test_SS_158_no_more_streams_than_fit_are_asked_about_at_once(monkeypatch):
    monkeypatch.setattr(progress_cover, "MEASURED_MAX", 2)
    bench = Bench(4).start()
    grants = only(Grant, bench.join("c1"))
    bench.down = "deaf"
    bench.ping("c1", 1, tuple(Report(one.stream, one.grant, 11, False) for one in grants))
    for count in (1, 2, 1):
        request = bench.lost[-1]
        assert len(request.streams) == count
        bench.feed(Measured(request.n, tuple(StreamSize(one, 11, False) for one in request.streams)))
    assert {each.progress for each in bench.record.assignments.values()} == {11}


def test_SS_125_a_listing_that_says_nothing_new_changes_nothing():
    """Of 70 000 streams none is put in its place again."""
    bench = Bench(1).start()
    before, listed = bench.record.streams, bench.record.list_n
    bench.at(1_100)
    assert (bench.record.streams is before, bench.record.list_n > listed) == (True, True)

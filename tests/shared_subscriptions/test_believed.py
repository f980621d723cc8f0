"""Progress that nothing stored covers, clause by clause (SS-157 to SS-159, SS-163, SS-226), over the pure stores."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_leader import Bench as LeaderBench
from test_leader import declared, only

from statemachines.kernel import Ask, Tell
from statemachines.shared_subscriptions import message, progress_cover, stream_store
from statemachines.shared_subscriptions.group_store import StoredRecord
from statemachines.shared_subscriptions.listing import RenewTimer
from statemachines.shared_subscriptions.member import MemberStatus
from statemachines.shared_subscriptions.names import record_key
from statemachines.shared_subscriptions.progress_cover import MeasureTimer, ProgressRefused, StreamBehind

LIES = [11, 2**62, message.END_OF_STREAM]
"""Ten messages are stored in each stream, and none has ended."""


class Bench(LeaderBench):
    """Answers of the stream store can be kept back."""

    def __init__(self, *arguments, **options):
        self.kept = None
        super().__init__(*arguments, **options)

    def answer(self, effect):
        if self.kept is not None and isinstance(effect, Ask) and isinstance(effect.request, stream_store.Measure):
            self.kept.append(effect.request)
            return []
        return super().answer(effect)

    def let(self, failed=False):
        """The store answers the oldest request that was kept."""
        request = self.kept.pop(0)
        answer = (
            stream_store.FetchFailed(request.n)
            if failed
            else self.streams_service.apply(self.streams, request, 0)[1][0]
        )
        return self.perform(self.node.feed(answer, self.now * 1_000_000))

    def publish(self, topic, count):
        self.streams, _ = self.streams_service.apply(self.streams, stream_store.Append(0, topic, count), 0)

    def said(self, grant, progress, finished=False):
        """What a borrower reports of a grant."""
        return message.UpdateProgress(
            grant.borrower, grant.epoch, grant.registration, grant.stream, grant.grant, progress, finished
        )


def led(topics=1, **options):
    """A leader, and a member that has been granted every stream."""
    bench = Bench(topics, **options).start()
    return bench, only(message.Grant, bench.join("c1"))


def progress_of(bench, grant):
    return bench.record.streams[grant.stream].progress, bench.stored(f"progress:{grant.stream}")


WAYS = {
    "progress": lambda bench, grant, lie: bench.feed(bench.said(grant, lie)),
    "final": lambda bench, grant, lie: bench.feed(bench.said(grant, lie, finished=True)),
    "ping": lambda bench, grant, lie: bench.ping("c1", 1, (message.Report(grant.stream, grant.grant, lie, False),)),
    "disconnect": lambda bench, grant, lie: bench.feed(
        message.Disconnect("c1~1/1", 1, 1, (message.Report(grant.stream, grant.grant, lie, True),))
    ),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("way", WAYS)
def test_SS_157_SS_158_what_is_not_stored_is_never_believed(way, lie):
    bench, (grant,) = led()
    WAYS[way](bench, grant, lie)
    bench.at(4_000)
    assert progress_of(bench, grant) == (0, None)
    assert bench.told == [ProgressRefused("leader-1~1/1", "c1~1/1", grant.stream, grant.grant, lie, 10)]
    assert not bench.record.members
    assert not bench.record.held
    assert [(one.stream, one.progress) for one in only(message.Grant, bench.join("c2"))] == [(grant.stream, 0)]


@pytest.mark.parametrize("way", WAYS)
def test_SS_158_what_the_store_has_by_then_counts(way):
    bench, (grant,) = led()
    bench.publish("t00000", 5)
    WAYS[way](bench, grant, 15)
    assert not bench.told
    bench.at(2_000)
    assert bench.stored(f"progress:{grant.stream}") == 15
    assert not bench.record.held
    WAYS["disconnect"](bench, grant, 15)
    assert [one.progress for one in only(message.Grant, bench.join("c2"))] == [15]


@pytest.mark.parametrize("way", WAYS)
def test_SS_158_the_end_of_a_stream_that_has_ended_counts(way):
    bench, (grant,) = led()
    bench.end(grant.stream)
    WAYS[way](bench, grant, message.END_OF_STREAM)
    bench.at(2_000)
    assert bench.stored(f"progress:{grant.stream}") == message.END_OF_STREAM
    assert bench.record.live == 0
    assert only(message.Grant, bench.join("c2")) == []


def test_SS_157_what_is_held_is_heard_and_neither_staged_nor_granted_onward():
    bench, (grant,) = led()
    bench.kept = []
    bench.publish("t00000", 5)
    (answer,) = bench.ping("c1", 1, (message.Report(grant.stream, grant.grant, 15, True),))
    assert isinstance(answer, message.PingResponse), "heard"
    assert [(one.n, one.streams) for one in bench.kept] == [(bench.record.measure_n, (grant.stream,))]
    bench.at(1_500)
    assert bench.stored(f"progress:{grant.stream}") is None
    assert bench.record.assignments[grant.stream].progress == 0
    bench.feed(message.Disconnect("c1~1/1", 1, 1))
    assert only(message.Grant, bench.join("c2")) == [], "nobody gets it before the store has spoken"
    assert [one.progress for one in only(message.Grant, bench.let())] == [15]


def test_SS_157_a_stream_that_was_given_back_meanwhile_waits_for_the_store():
    bench, (grant,) = led()
    bench.kept = []
    bench.feed(bench.said(grant, 2**62))
    bench.join("c2")
    sent = bench.feed(message.RevokeFinished("c1~1/1", 1, 1, grant.stream, grant.grant))
    assert only(message.Grant, sent) == []
    (again,) = only(message.Grant, bench.let())
    assert again.progress == 0
    assert (again.borrower, list(bench.record.members)) == ("c2~1/1", ["c2~1/1"])


def test_SS_158_one_request_is_under_way_at_a_time_and_the_next_carries_what_came_meanwhile():
    bench, (one, two, three) = led(3)
    bench.kept = []
    bench.feed(bench.said(one, 11))
    bench.feed(bench.said(two, 11))
    bench.feed(bench.said(three, 11))
    bench.feed(bench.said(one, 11))
    assert [request.streams for request in bench.kept] == [(one.stream,)]
    for topic in ("t00000", "t00001", "t00002"):
        bench.publish(topic, 1)
    bench.let()
    assert [request.streams for request in bench.kept] == [tuple(sorted((two.stream, three.stream)))]
    bench.let()
    assert bench.kept == []
    assert {each.progress for each in bench.record.assignments.values()} == {11}


def test_SS_158_what_grew_after_it_was_asked_about_is_asked_about_again():
    bench, (grant,) = led()
    bench.kept = []
    bench.feed(bench.said(grant, 11))
    bench.publish("t00000", 1)
    answer = bench.streams_service.apply(bench.streams, bench.kept.pop(), 0)[1][0]
    bench.publish("t00000", 1)
    bench.feed(bench.said(grant, 12, finished=True))
    bench.feed(bench.said(grant, 11))
    bench.perform(bench.node.feed(answer, 0))
    assert not bench.told, "the store had not been asked about 12"
    bench.let()
    assert bench.record.assignments[grant.stream].progress == 12
    assert not bench.record.held


def test_SS_158_a_final_progress_that_was_held_ends_a_revoke():
    bench, grants = led(2)
    bench.kept = []
    (revoke,) = only(message.Revoke, bench.join("c2"))
    bench.publish(revoke.stream.partition("/")[2], 3)
    grant = next(one for one in grants if one.stream == revoke.stream)
    assert bench.feed(bench.said(grant, 13)) == []
    assert bench.feed(bench.said(grant, 13, finished=True)) == [], "nothing is answered before the store has spoken"
    assert bench.feed(bench.said(grant, 13)) == [], "a late copy of what was said first"
    (revoked,) = only(message.Revoked, bench.let())
    assert revoked.stream == grant.stream


def test_SS_158_the_streams_of_a_member_that_lied_wait_for_the_end_of_its_lease():
    bench, (grant,) = led()
    bench.ping("c1")
    bench.join("c2")
    sent = bench.feed(bench.said(grant, 2**62))
    assert only(message.Invalidate, sent) == [message.Invalidate("c1~1/1", 1, 1)]
    assert only(message.Grant, sent) == []
    assert bench.record.members["c1~1/1"].status is MemberStatus.LAPSED
    assert only(message.Grant, bench.at(3_000)) == []
    bench.ping("c2")
    assert [one.borrower for one in only(message.Grant, bench.at(3_100))] == ["c2~1/1"]


def test_SS_158_of_two_lies_of_a_member_both_are_told_and_it_is_kicked_once():
    bench, grants = led(2)
    sent = bench.ping("c1", 1, tuple(message.Report(one.stream, one.grant, 99, False) for one in grants))
    assert len(only(message.Invalidate, sent)) == 1
    assert sorted(one.stream for one in bench.told) == sorted(one.stream for one in grants)


def test_SS_158_of_a_stream_that_was_dropped_nothing_is_judged():
    bench, grants = led(8)
    grant = max(grants, key=lambda one: one.stream)
    assert not grant.stream.startswith("0."), "it is the generation that was dropped"
    bench.kept = []
    bench.feed(bench.said(grant, 11))
    for request in (stream_store.Rotate(0), stream_store.Drop(0, 1)):
        bench.streams, _ = bench.streams_service.apply(bench.streams, request, 0)
    bench.let()
    assert (bench.told, dict(bench.record.held)) == ([], {})
    assert "c1~1/1" in bench.record.members
    bench.feed(bench.said(grant, 12))
    bench.feed(RenewTimer())
    assert not bench.record.held, "and what is held of one that vanished is forgotten"
    bench.let()
    assert not bench.told


def test_SS_158_a_stream_that_the_store_does_not_have_covers_nothing():
    bench, (grant,) = led()
    bench.streams = bench.streams_service.initial()
    bench.feed(bench.said(grant, 11))
    assert len(bench.told) == 1


def test_SS_158_an_answer_to_another_request_changes_nothing():
    bench, (grant,) = led()
    bench.kept = []
    bench.feed(bench.said(grant, 11))
    bench.perform(bench.node.feed(stream_store.Measured(99, (stream_store.StreamSize(grant.stream, 20, False),)), 0))
    assert bench.clauses[-1] == "SS-153"
    assert bench.record.assignments[grant.stream].progress == 0


def test_SS_159_a_store_that_does_not_say_is_asked_again_and_what_is_held_stays_held():
    bench, (grant,) = led()
    bench.kept = []
    bench.publish("t00000", 1)
    bench.feed(bench.said(grant, 11))
    assert bench.let(failed=True) == []
    assert bench.record.measure_n == 0
    assert list(bench.record.held) == [grant.stream]
    bench.at(999)
    assert bench.kept == []
    bench.at(1_000)
    assert len(bench.kept) == 1
    bench.feed(MeasureTimer())
    assert len(bench.kept) == 1, "one at a time"
    bench.let()
    assert bench.record.assignments[grant.stream].progress == 11


def test_SS_158_no_more_streams_than_fit_are_asked_about_at_once(monkeypatch):
    monkeypatch.setattr(progress_cover, "MEASURED_MAX", 2)
    bench, grants = led(3)
    bench.kept = []
    bench.streams = bench.streams_service.initial()
    bench.ping("c1", 1, tuple(message.Report(one.stream, one.grant, 11, False) for one in grants))
    for topic in ("t00000", "t00001", "t00002"):
        bench.publish(topic, 11)
    assert [len(request.streams) for request in bench.kept] == [1]
    bench.let()
    assert [len(request.streams) for request in bench.kept] == [2]
    bench.let()
    assert {each.progress for each in bench.record.assignments.values()} == {11}


def behind(progress):
    stream = "1.0/t00000"
    groups = declared().set(record_key("g", "#", f"progress:{stream}"), StoredRecord(progress, 0))
    bench = Bench(topics=1, groups=groups)
    assert list(bench.streams.by_id) == [stream]
    return bench.start(), stream


@pytest.mark.parametrize("progress", [11, message.END_OF_STREAM])
def test_SS_163_a_stream_behind_its_durable_progress_is_named_and_not_granted(progress):
    bench, stream = behind(progress)
    assert bench.told == [StreamBehind("leader-1~1/1", stream, progress, 10)]
    assert only(message.Grant, bench.join("c1")) == []
    bench.publish("t00000", 5)
    bench.at(2_500)
    assert only(message.Grant, bench.join("c2")) == []
    assert len(bench.told) == 1, "once by a leader"
    assert bench.stored(f"progress:{stream}") == progress


def test_SS_163_also_where_other_pages_follow(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.listing.PAGE", 1)
    stream, _ = sorted(Bench(topics=2).streams.by_id)
    groups = declared().set(record_key("g", "#", f"progress:{stream}"), StoredRecord(11, 0))
    bench = Bench(topics=2, groups=groups).start()
    assert bench.told == [StreamBehind("leader-1~1/1", stream, 11, 10)]


def test_SS_163_a_stream_at_its_durable_progress_is_granted():
    bench, _ = behind(10)
    assert bench.told == []
    assert [one.progress for one in only(message.Grant, bench.join("c1"))] == [10]


def test_SS_125_a_listing_says_how_far_a_known_stream_goes():
    bench, (grant,) = led()
    bench.kept = []
    bench.publish("t00000", 5)
    bench.at(1_100)
    bench.feed(bench.said(grant, 15))
    assert bench.kept == [], "it is known to be there"
    assert bench.record.assignments[grant.stream].progress == 15
    bench.feed(bench.said(grant, 16))
    assert len(bench.kept) == 1


def test_SS_125_a_listing_that_says_nothing_new_changes_nothing():
    """Of 70 000 streams none is put in its place again."""
    bench, _ = led()
    before, listed = bench.record.streams, bench.record.list_n
    bench.at(1_100)
    assert (bench.record.streams is before, bench.record.list_n > listed) == (True, True)


def test_SS_125_a_listing_says_that_a_known_stream_has_ended():
    bench, (grant,) = led()
    bench.kept = []
    bench.publish("t00000", 5)
    bench.end(grant.stream)
    bench.at(1_100)
    bench.feed(bench.said(grant, message.END_OF_STREAM))
    assert bench.kept == [], "it is known to have ended"
    assert bench.record.live == 0


def test_SS_226_the_store_says_how_far_streams_go():
    store = stream_store.StreamStore(shards=1)
    state = store.initial()
    for topic, count in (("b", 2), ("a", 3)):
        state, _ = store.apply(state, stream_store.Append(0, topic, count), 0)
    state = replace(state, by_id=state.by_id.set("0.0/a", replace(state.by_id["0.0/a"], ended=True)))
    _, (answer,) = store.apply(state, stream_store.Measure(7, ("0.0/b", "0.0/x", "0.0/a")), 0)
    assert [(one.stream, one.count, one.ended) for one in answer.sizes] == [("0.0/a", 3, True), ("0.0/b", 2, False)]
    assert (answer.n, answer.oldest) == (7, 0)
    _, (listed,) = store.apply(state, stream_store.ListStreams(1, "#", 0, "", 9), 0)
    assert [(one.count, one.ended) for one in listed.streams] == [(3, True), (2, False)]


def test_refusals_are_effects_of_the_step_that_judges():
    bench, (grant,) = led()
    bench.kept = []
    bench.feed(bench.said(grant, 11))
    request = bench.kept.pop()
    effects = bench.node.feed(stream_store.Measured(request.n, (stream_store.StreamSize(grant.stream, 10, False),)), 0)
    assert [type(one.event) for one in effects if isinstance(one, Tell)] == [ProgressRefused]

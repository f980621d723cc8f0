"""Generations at the Leader (clauses SS-154 to SS-156): turns, ends, and what was dropped."""

from __future__ import annotations

from test_leader import Bench, only

from statemachines.shared_subscriptions.group_store import StoredRecord
from statemachines.shared_subscriptions.leader_record import LeaderStatus
from statemachines.shared_subscriptions.message import END_OF_STREAM, Grant, Revoke, Revoked, RevokeFinished
from statemachines.shared_subscriptions.stream_store import Append, Drop, ListStreams, Rotate, shard_of


def store(bench, *requests):
    for request in requests:
        bench.streams, _ = bench.streams_service.apply(bench.streams, request, bench.now)


def rotated(*topics):
    """A leader with one member that holds t0 of generation 0; then the store rotates, and `topics` are published."""
    bench = Bench(topics=0)
    store(bench, Append(0, "t0", 10))
    bench.start()
    (grant,) = only(Grant, bench.join("c1"))
    store(bench, Rotate(0), *(Append(0, topic, 10) for topic in topics))
    return bench, grant


def end(bench, grant):
    bench.progress(grant, END_OF_STREAM)
    return bench.feed(RevokeFinished(grant.borrower, 1, 1, grant.stream, grant.grant))


def renew(bench, times=1):
    """Let the leader list the streams so many times."""
    sent = []
    for _ in range(times):
        bench.ping("c1", n=bench.now + 1)
        sent += bench.at(bench.now + 1_000)
    return sent


def streams(sent):
    return [grant.stream for grant in only(Grant, sent)]


def test_SS_154_the_next_generation_waits_until_the_one_before_is_complete():
    bench, grant = rotated("t0")
    assert streams(renew(bench, 3)) == []
    end(bench, grant)
    assert streams(renew(bench)) == [grant.stream.replace(".0/", ".1/")]


def test_SS_154_each_shard_goes_at_its_own_pace():
    bench, grant = rotated("t0", "t1")
    shard = grant.stream[0]
    granted = streams(renew(bench))
    assert len(granted) == 1
    assert granted[0].endswith(".1/t1")
    assert granted[0][0] != shard, "t1 is of another shard, which has nothing of generation 0"


def test_SS_154_a_listing_that_began_before_the_rotation_opens_nothing(monkeypatch):
    monkeypatch.setattr("statemachines.shared_subscriptions.listing.PAGE", 1)
    bench = Bench(topics=0)
    store(bench, Append(0, "t0", 1), Append(0, "t1", 1))
    bench.start()
    for grant in only(Grant, bench.join("c1")):
        bench.end(grant.stream)
        end(bench, grant)
    bench.down = "deaf"
    bench.at(1_000)
    (first_page,) = [request for request in bench.lost if isinstance(request, ListStreams)]
    bench.down = ""
    answer = bench.streams_service.apply(bench.streams, first_page, 0)[1][0]
    store(bench, Rotate(0), Append(0, "t0", 1), Append(0, "t1", 1))
    assert streams(bench.perform(bench.node.feed(answer, bench.now))) == []
    assert len(streams(renew(bench))) == 2


def test_SS_154_streams_of_later_generations_do_not_count():
    bench, _ = rotated("t0")
    renew(bench)
    assert bench.record.live == 1
    assert len(bench.record.streams) == 2


def test_SS_155_a_stream_that_was_dropped_is_taken_back():
    bench, grant = rotated("t0")
    store(bench, Drop(0, 1))
    sent = renew(bench)
    assert [(one.stream, one.grant) for one in only(Revoked, sent)] == [(grant.stream, grant.grant)]
    assert bench.clauses.count("SS-155") == 0, "it is no row of its own: the listing decides"
    assert grant.stream not in bench.record.streams
    assert streams(sent) == [grant.stream.replace(".0/", ".1/")], "what was dropped counts as complete"
    bench.feed(RevokeFinished(grant.borrower, 1, 1, grant.stream, grant.grant))
    assert grant.stream not in bench.owners()
    assert grant.stream not in [stream for _, stream in bench.record.free.items.items()]


def test_SS_155_a_listing_that_is_not_whole_takes_nothing_back():
    bench, grant = rotated()
    bench.streams = bench.streams_service.initial()
    assert renew(bench) == []
    assert bench.owners() == {grant.stream: "c1~1/1"}


def test_SS_155_what_a_borrower_says_of_a_dropped_stream_does_not_count():
    bench, grant = rotated()
    store(bench, Drop(0, 1))
    renew(bench)
    bench.progress(grant, 7, finished=True)
    bench.at(bench.now + 2_000)
    assert bench.stored(f"progress:{grant.stream}") is None


def test_SS_155_the_progress_of_dropped_streams_is_removed():
    bench, grant = rotated("t0")
    end(bench, grant)
    renew(bench, 2)
    assert bench.stored(f"progress:{grant.stream}") == END_OF_STREAM
    store(bench, Drop(0, 1))
    renew(bench, 3)
    assert bench.stored(f"progress:{grant.stream}") is None


def test_SS_155_also_of_streams_that_only_an_earlier_leader_knew():
    bench, grant = rotated("t0")
    end(bench, grant)
    renew(bench, 2)
    store(bench, Drop(0, 1))
    later = Bench(topics=0, groups=bench.groups, node="leader-2")
    later.streams = bench.streams
    later.start()
    later.at(40_000)
    assert later.status in (LeaderStatus.LEADING, LeaderStatus.RESIGNED)
    assert later.stored(f"progress:{grant.stream}") is None


TOPICS = [f"t{number}" for number in range(12)]
"""In every shard there is one."""


def test_SS_155_what_was_dropped_is_a_generation_and_no_shard():
    bench = Bench(topics=0)
    store(bench, *(Append(0, topic, 1) for topic in TOPICS))
    bench.start()
    bench.join("c1")
    assert {stream[0] for stream in bench.record.streams} == set("0123")
    store(bench, Rotate(0), *(Append(0, topic, 1) for topic in TOPICS), Drop(0, 1))
    renew(bench, 2)
    assert sorted(bench.record.streams) == sorted(f"{stream_of(topic)}.1/{topic}" for topic in TOPICS)


def stream_of(topic):
    """The shard of a topic."""
    return shard_of(topic, 4)


def test_SS_125_each_stream_that_appears_in_an_open_generation_counts_once():
    """One after the other, and whoever has fewer is granted it."""
    topics = [topic for topic in (f"t{number}" for number in range(50)) if stream_of(topic) == 0]
    bench = Bench(topics=0)
    store(bench, Append(0, topics[0], 1))
    bench.start()
    for name in ("c1", "c2"):
        bench.join(name)
    for count, topic in enumerate(topics[1:6], 2):
        store(bench, Append(0, topic, 1))
        bench.ping("c2", n=bench.now + 1)
        for grant in only(Grant, renew(bench)):
            bench.progress(grant)
        held = list(bench.owners().values())
        assert len(held) == count
        assert abs(held.count("c1~1/1") - held.count("c2~1/1")) <= 1


def test_SS_155_of_streams_that_only_an_earlier_leader_knew_too_and_their_progress_is_removed_once():
    bench = Bench(topics=0)
    store(bench, *(Append(0, topic, 1) for topic in TOPICS))
    bench.start()
    for grant in only(Grant, bench.join("c1")):
        bench.progress(grant, 1)
    bench.ping("c1")
    bench.at(2_500)
    gone = [f"/1.1/g/#:progress:{stream_of(topic)}.0/{topic}" for topic in TOPICS]
    assert set(gone) <= set(bench.groups)
    store(bench, Rotate(0), *(Append(0, topic, 1) for topic in TOPICS), Drop(0, 1))
    later = Bench(topics=0, groups=bench.groups, node="leader-2")
    later.streams = bench.streams
    later.start()
    later.at(28_000)
    assert later.status is LeaderStatus.LEADING
    removed = [key for commit in later.commits for key, value in commit.put if value is None]
    assert sorted(removed) == sorted(gone)
    assert not set(gone) & set(later.groups)


def test_SS_155_the_progress_of_what_was_not_dropped_stays_though_it_is_not_listed():
    bench = Bench(topics=1)
    bench.groups = bench.groups.set("/1.1/g/#:progress:2.0/elsewhere", StoredRecord(7, 0))
    bench.start()
    bench.at(2_500)
    assert bench.stored("progress:2.0/elsewhere") == 7


def test_SS_162_what_is_left_when_a_generation_was_dropped_is_shared_anew():
    """Of one shard everything is dropped, of another nothing: no stream is free, and there are fewer."""
    old, new = ([topic for topic in (f"t{n}" for n in range(50)) if stream_of(topic) == shard][:2] for shard in (0, 1))
    bench = Bench(topics=0)
    store(bench, *(Append(0, topic, 1) for topic in old), Rotate(0), *(Append(0, topic, 1) for topic in new))
    bench.start()
    bench.join("c1")
    for revoke in only(Revoke, bench.join("c2")):
        for grant in only(Grant, bench.finish(revoke, 1)):
            bench.progress(grant)
    assert {stream: owner for stream, owner in bench.owners().items() if owner == "c2~1/1"} == dict.fromkeys(
        [f"1.1/{topic}" for topic in new], "c2~1/1"
    )
    store(bench, Drop(0, 1))
    bench.ping("c2")
    sent = renew(bench)
    assert [one.borrower for one in only(Revoke, sent)] == ["c2~1/1"], "the share of each is one"


def test_SS_156_what_ended_is_never_granted_again_by_a_later_leader():
    bench, grant = rotated("t0")
    end(bench, grant)
    renew(bench, 2)
    later = Bench(topics=0, groups=bench.groups, node="leader-2")
    later.streams = bench.streams
    later.start()
    later.at(21_000)
    assert streams(later.join("c2")) == [grant.stream.replace(".0/", ".1/")]

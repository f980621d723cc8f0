"""The Private subscription, clause by clause (spec/shared_subscriptions/clauses.md SS-190 to SS-194)."""

from __future__ import annotations

from statemachines.kernel import Ask, Map, Node, Stop, Tell
from statemachines.shared_subscriptions import private_subscription as private_module
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.private_subscription import (
    BEGINNING,
    LISTING,
    NOW,
    PRIVATE,
    READING,
    PrivateRecord,
    ReadTo,
    RenewTimer,
)
from statemachines.shared_subscriptions.stream import Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import FetchFailed, ListStreams, StreamInfo, StreamsListed

P = "c1~1/1"


class Bench:
    """A private subscription, begun."""

    def __init__(self, topic_filter="#", start_ns=NOW, **progress):
        record = PrivateRecord(P, topic_filter, start_ns, progress=Map(progress))
        self.node = Node(PRIVATE, record, name=P, now_ns=0, check=True)
        self.now = 0
        self.begun = self.feed(Start())

    def feed(self, event):
        return self.node.feed(event, self.now)

    def renew(self):
        self.now = self.node.deadline()
        return self.node.fire(self.now)

    def listed(self, *found, more=False):
        """A page: (stream, first) or (stream, first, shard, generation)."""
        infos = tuple(StreamInfo(one[0], *(one[2:] or (0, 0)), one[1], 99) for one in found)
        return self.feed(StreamsListed(self.node.record.list_n, infos, more))

    @property
    def status(self):
        return self.node.record.status


def ask(n, start_ns, after=""):
    return Ask("stream_store", ListStreams(n, "#", start_ns, after, private_module.STREAMS_PER_PAGE))


def read_to(stream, at):
    return Tell(ReadTo(P, stream, at))


def install(stream, at):
    return Tell(Install(P, stream, 0, at))


def uninstall(stream):
    return Tell(Uninstall(P, stream, 0))


def test_SS_190_with_a_filter_it_lists_and_reads_on_where_the_application_says():
    bench = Bench(b=7, a=3, ended=END_OF_STREAM)
    assert bench.begun == [ask(1, NOW)]
    assert bench.feed(Start()) == []
    assert bench.listed(("a", 9), ("b", 9), ("ended", 9)) == [install("a", 3), install("b", 7)]


def test_SS_190_without_a_filter_what_the_application_knows_is_read_at_once():
    bench = Bench("", b=7, a=3, ended=END_OF_STREAM)
    assert bench.begun == [install("a", 3), install("b", 7)]
    assert bench.status is READING
    assert bench.renew() == [], "and nothing is listed"


def test_SS_191_streams_are_listed_in_pages_and_begin_where_the_subscription_does():
    bench = Bench()
    assert bench.listed(("a", 5), ("aa", 2), more=True) == [read_to("a", 5), read_to("aa", 2), ask(2, NOW, "aa")]
    assert bench.status is LISTING
    assert bench.listed(("b", 9)) == [read_to("b", 9), install("a", 5), install("aa", 2), install("b", 9)]
    assert bench.status is READING
    assert bench.renew() == [ask(3, BEGINNING)]
    assert bench.now == 1_000 * MS
    found = bench.listed(("a", 0), ("aa", 0), ("b", 0), ("c", 0))
    assert found == [read_to("c", 0), install("c", 0)], "it appeared later: all of it"


def test_SS_191_what_a_whole_listing_does_not_find_is_dropped():
    bench = Bench()
    bench.listed(("a", 5), ("b", 5))
    bench.renew()
    assert bench.listed(("b", 0), more=True) == [ask(3, BEGINNING, "b")], "half a listing says nothing"
    assert bench.listed(("c", 0)) == [read_to("c", 0), uninstall("a"), install("c", 0)]
    assert set(bench.node.record.progress) == {"b", "c"}


def test_SS_191_the_first_listing_drops_nothing_that_the_application_knows():
    bench = Bench(old=3)
    bench.listed(("a", 0))
    assert set(bench.node.record.progress) == {"a", "old"}


def test_SS_191_generations_of_a_shard_take_their_turn():
    bench = Bench(start_ns=BEGINNING)
    streams = (("a0", 0, 0, 0), ("a1", 0, 0, 1), ("b0", 0, 1, 0), ("b1", 0, 1, 1), ("c10", 0, 0, 10))
    told = [read_to(name, 0) for name, *_ in streams]
    assert bench.listed(*streams) == [*told, install("a0", 0), install("b0", 0)]
    bench.feed(StreamProgress("a0", 0, END_OF_STREAM))
    bench.renew()
    assert bench.listed(*streams) == [install("a1", 0)]
    bench.renew()
    gone = tuple(one for one in streams if one[0] not in ("b0", "a1"))
    assert bench.listed(*gone) == [uninstall("a1"), uninstall("b0"), install("b1", 0), install("c10", 0)]


def test_SS_192_a_listing_that_failed_or_comes_too_late_changes_nothing():
    bench = Bench()
    bench.feed(FetchFailed(9))
    assert bench.status is LISTING
    bench.feed(FetchFailed(1))
    assert bench.status is READING
    assert bench.listed(("late", 0)) == []
    assert bench.renew() == [ask(2, NOW)], "no listing was whole yet"
    assert bench.feed(RenewTimer()) == []
    assert bench.feed(StreamsListed(1, (StreamInfo("late", 0, 0, 0, 0),), False)) == []
    assert bench.node.record.progress == Map()


def test_SS_193_progress_is_kept_while_it_grows_and_told():
    bench = Bench(a=3)
    assert bench.feed(StreamProgress("a", 0, 5)) == [], "it is not read yet"
    bench.listed(("a", 9))
    assert bench.feed(StreamProgress("a", 0, 5)) == [read_to("a", 5)]
    for stale in (StreamProgress("a", 0, 4), StreamProgress("a", 0, 5), StreamProgress("x", 0, 5)):
        assert bench.feed(stale) == []
    ended = StreamProgress("a", 0, END_OF_STREAM)
    assert bench.feed(ended) == [uninstall("a"), read_to("a", END_OF_STREAM)]
    assert bench.feed(ended) == []
    bench.renew()
    assert bench.listed(("a", 9)) == [], "it is never read again"


def test_SS_194_it_ends_at_once():
    for event in (OnUnsubscribe(), OnDisconnect()):
        bench = Bench(a=3)
        assert bench.feed(event) == [Tell(Destroyed(P, False, 0)), Stop()]
        assert bench.node.stopped
        assert bench.node.deadline() is None

"""Two lies of one member that are judged by one answer (SS-158): every stream is granted again."""

from __future__ import annotations

from test_leader import Bench, only

from statemachines.kernel import Ask
from statemachines.shared_subscriptions import stream_store
from statemachines.shared_subscriptions.message import LeaderWanted, Revoke, UpdateProgress

BEYOND = 2**40


def lie(bench, one):
    link = one.link
    bench.feed(
        UpdateProgress(link.borrower, link.epoch, link.registration, one.stream, one.grant, BEYOND, finished=False)
    )


def answer(bench):
    """The store says how far the streams go that it was asked about last."""
    for one in bench.apply(Ask(stream_store.SERVICE, bench.lost.pop())):
        bench.feed(one)


def test_SS_158_a_stream_of_a_liar_that_was_kicked_for_another_is_granted_again():
    """Both were asked about in one request, since the store was still asked about somebody else's."""
    bench = Bench(topics=4).start()
    bench.join("a")
    bench.feed(LeaderWanted("x~1/1", "g", "#"))
    for revoke in only(Revoke, bench.at(bench.now + 1_000)):
        bench.finish(revoke)
    held = sorted(bench.record.assignments.items())
    theirs = [one for _, one in held if one.link.borrower == "x~1/1"]
    ours = [one for _, one in held if one.link.borrower == "a~1/1"]
    assert (len(theirs), len(ours)) == (2, 2)
    bench.down = "deaf"
    for one in (theirs[0], *ours):
        lie(bench, one)
    answer(bench)
    assert len({bench.record.held[one.stream].n for one in ours}) == 1, "both in one request"
    answer(bench)
    bench.down = ""
    bench.node.check()
    bench.feed(LeaderWanted("b~1/1", "g", "#"))
    assert set(bench.record.assignments) == {stream for stream, _ in held}

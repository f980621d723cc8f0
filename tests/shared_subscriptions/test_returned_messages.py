"""Messages that an application gives back, and those that failed elsewhere: the session (SS-332 to SS-338)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_session import A, B, Bench

from statemachines.shared_subscriptions.borrower import LeaseBegan
from statemachines.shared_subscriptions.session import Ack, Deliver, Nack, Take
from statemachines.shared_subscriptions.stream import Install

SECOND = 1_000_000_000


def take(bench, limit=1):
    """What is handed over, after what can be fetched was."""
    bench.settle()
    return [event for event in bench.feed(Take(limit)) if isinstance(event, Deliver)]


MOVES = st.lists(
    st.tuples(st.sampled_from(("take", "ack", "nack", "delay")), st.integers(0, 7), st.integers(1, 4)), max_size=30
)


@given(moves=MOVES, failed=st.integers(0, 2), most=st.sampled_from((0, 3)))
def test_SS_332_whatever_is_given_back_comes_again_in_order(moves, failed, most):
    """Nothing is lost, and nothing that is acknowledged comes again."""
    bench = Bench(a=8)
    bench.feed(LeaseBegan(B))
    bench.feed(Install(B, "a", 1, 0, failed, most))
    acked, in_hand = set(), set()
    for move, number, limit in (*moves, *((("take", 0, 1), ("ack all", 0, 1)) * 20)):
        reading = bench.node.record.readings[A]
        if move == "take":
            for _ in range(8):
                bench.tick()
                if bench.asks:
                    bench.serve()
            for one in take(bench, limit):
                handed = set(range(one.first, one.last + 1))
                assert not handed & acked
                assert all(at in acked or at in in_hand for at in range(one.first)), "order"
                in_hand |= handed
        elif move in ("ack", "ack all"):
            chosen = sorted(in_hand) if move == "ack all" else sorted(in_hand)[number : number + 1]
            for at in chosen:
                bench.feed(Ack(B, "a", 1, at, at))
            acked |= set(chosen)
            in_hand -= set(chosen)
        elif reading.progress <= number < reading.delivered and number not in acked and reading.failed < 2:
            bench.feed(Nack(B, "a", 1, number, SECOND if move == "delay" else 0))
            in_hand = {at for at in in_hand if at < number}
    assert bench.node.record.readings[A].progress == 8

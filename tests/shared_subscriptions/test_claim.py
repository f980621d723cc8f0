"""The claim of a Leader whose store answers late, twice, or not (SS-123, SS-129, SS-135, SS-139), over pure stores."""

from __future__ import annotations

from test_leader import CONFIGURATION, Bench, destroy, only

from statemachines.kernel import Ask
from statemachines.shared_subscriptions import group_store
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.group_store import Claim, Commit, StoredRecord, StoreFailed
from statemachines.shared_subscriptions.leader_record import LeaderStatus
from statemachines.shared_subscriptions.message import Grant

OWN_MS = CONFIGURATION.claim_by_own_clock_ns() // MS


class Failing(Bench):
    """While `fails`, the store does not commit, and says so."""

    fails = False

    def answer(self, effect):
        if self.fails and isinstance(effect.request, Commit):
            return self.perform(self.node.feed(StoreFailed(effect.request.n), self.now * MS))
        return super().answer(effect)

    def renewed(self, claim):
        """Somebody else has committed this claim."""
        self.groups = self.groups.set("/1.1/g/#:claim", StoredRecord(claim, self.now * MS))

    def end_of_claim_ms(self):
        return self.node.armed_timers()["claim_end", ""] // MS


OTHER = Claim("leader-2~1/1", 4)


def watching():
    """A leader that watches the claim of another one, which is not old yet."""
    bench = Failing()
    bench.renewed(OTHER)
    bench.start().at(14_000)
    assert bench.status is LeaderStatus.FOLLOWER
    return bench


def test_SS_123_the_same_claim_tried_again_counts_from_the_first_try():
    """Either batch may be the one that is committed."""
    bench = Failing()
    bench.fails = True
    bench.start()
    bench.fails = False
    bench.at(1_000)
    assert bench.status is LeaderStatus.LEADING
    assert bench.end_of_claim_ms() == OWN_MS


def test_SS_123_after_the_claim_was_somebody_else_s_it_counts_from_the_next_try():
    """What was tried before expected a claim that is there no more."""
    bench = watching()
    bench.fails = True
    bench.at(15_000)
    assert bench.record.trial is not None
    bench.renewed(OTHER)
    bench.fails = False
    bench.at(16_000)
    assert bench.status is LeaderStatus.FOLLOWER
    bench.at(31_000)
    assert bench.stored("claim") == Claim("leader-1~1/1", 5)
    assert bench.end_of_claim_ms() == 31_000 + OWN_MS


def test_SS_135_an_answer_that_comes_twice_takes_no_claim_that_was_renewed():
    bench = watching()
    (look,) = bench.node.fire(15_000 * MS)
    bench.now = 15_000
    bench.renewed(OTHER)
    (found,) = bench.apply(look)
    for _ in range(2):
        assert bench.feed(found) == []
        assert bench.status is LeaderStatus.FOLLOWER
    assert bench.commits == []


def test_SS_139_what_was_staged_while_the_batch_was_under_way_is_not_written_either():
    bench = Bench().start()
    one, _ = only(Grant, bench.join("c1"))
    bench.progress(one, 5)
    bench.down = "deaf"
    bench.at(1_000)
    (batch,) = (request for request in bench.lost if isinstance(request, Commit))
    bench.progress(one, 7)
    bench.down = ""
    destroy(bench)
    bench.perform(bench.node.feed(bench.apply(Ask(group_store.SERVICE, batch))[0], bench.now * MS))
    assert bench.stored("claim") == Claim("", 1, clean=False)
    assert bench.stored(f"progress:{one.stream}") is None


def test_SS_129_a_batch_that_was_awaited_before_the_claim_is_given_up_moves_its_end():
    bench = Failing().start()
    bench.down = "deaf"
    bench.at(5_000)
    (batch,) = (request for request in bench.lost if isinstance(request, Commit))
    bench.feed(Halt(), 6_000)
    bench.feed(bench.apply(Ask(group_store.SERVICE, batch))[0])
    assert bench.status is LeaderStatus.RELEASING
    assert bench.end_of_claim_ms() == 5_000 + OWN_MS

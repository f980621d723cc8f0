"""The borrowers that a leader under test hears over the wire."""

from random import Random

from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import LeaderRecord
from statemachines.shared_subscriptions.message import LeaderWanted, UpdateProgress
from statemachines.testing.shared_subscriptions.wire_leader import (
    COUNT,
    FILTER,
    GROUP,
    TIMES,
    BorrowersPlayer,
    load_leader,
)

REPORTS = 600
"""As many as a run of half a minute has."""


def test_streams_are_not_at_their_end_before_the_run_is():
    """D-1210: a leader that loses a report shows it only while a report can be further than what is known."""
    player = BorrowersPlayer("kit~1", Random(1))
    record = load_leader(LeaderRecord("leader-1~1/1", GROUP, FILTER, TIMES, alone=True))
    record = LEADER.step(record, LeaderWanted("kit~1/1", GROUP, FILTER), 0).record
    further = 0
    for _ in range(REPORTS):
        said = [
            one
            for one in player.propose(record)
            if isinstance(one, UpdateProgress) and not one.finished and one.progress <= COUNT
        ]
        for report in said[:1]:
            before = record.assignments
            record = LEADER.step(record, report, 0).record
            further += record.assignments != before
    reached = [one.progress for one in record.assignments.values()]
    assert reached
    assert max(reached) < COUNT
    assert further > REPORTS / 10

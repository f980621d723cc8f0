"""What the dispatch rows compare does the same work: equal effects, rows and records on the same events."""

from random import Random

import pytest

from statemachines.shared_subscriptions import message
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines.shared_subscriptions.stream import StreamProgress
from statemachines_bench.dispatch import (
    PAIR,
    by_transitions,
    hand_borrower,
    list_connecting,
    mix,
    new_record,
    stream_name,
)


def random_events(seed, count):
    """Grants, revokes and progress in no sensible order: repeated, late, of other pairs."""
    chance = Random(seed)
    events = []
    for _ in range(count):
        stream, grant = stream_name(chance.randrange(4)), chance.randrange(1, 9)
        pair = chance.choice([PAIR] * 9 + [(PAIR[0], 0, 1)])
        acked = chance.choice([(), ((70, 72),)])
        events.append(
            chance.choice(
                [
                    message.Grant(*pair, stream, grant, chance.randrange(50), failed=chance.randrange(3), acked=acked),
                    message.Revoke(*pair, stream, grant),
                    message.Revoked(*pair, stream, grant),
                    StreamProgress(
                        stream,
                        grant,
                        chance.choice([1, 30, 60, message.END_OF_STREAM]),
                        chance.random() < 0.3,
                        failed=chance.randrange(3),
                        in_hand=chance.random() < 0.3,
                        acked=acked,
                        reason=chance.choice(["", "busy"]),
                    ),
                    message.PingResponse(*pair, chance.randrange(1, 4)),
                ]
            )
        )
    return events


@pytest.mark.parametrize("seed", range(40))
def test_the_hand_written_borrower_does_what_the_table_does(seed):
    record, hand = new_record(), hand_borrower(new_record())
    events = list_connecting() + [(event, 10 + at) for at, event in enumerate(random_events(seed, 150))]
    for event, now_ns in events + mix(streams=5, seconds=1)[3:]:
        step = BORROWER.step(record, event, now_ns)
        assert list(step.effects) == hand.feed(event, now_ns), event
        record = step.record
    assert hand.unfinished == record.unfinished
    assert hand.changed == set(record.changed)
    assert hand.carried == set(record.carried)


def test_transitions_takes_the_same_steps():
    record = new_record()
    for event, now_ns in mix(streams=20, seconds=2):
        ours = BORROWER.step(record, event, now_ns)
        with by_transitions(BORROWER):
            theirs = BORROWER.step(record, event, now_ns)
        assert theirs == ours
        record = ours.record

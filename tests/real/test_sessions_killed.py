"""Sessions whose node is killed or stopped while publishers go on: every message arrives, once and in order."""

from __future__ import annotations

import asyncio

import pytest
from sessions_run import Got, copies_in, judge, play


@pytest.mark.parametrize("seed", [1, 2])
def test_every_message_arrives_once_and_in_order_whoever_is_killed(tmp_path, seed):
    store = str(tmp_path / "sessions.db")
    done, answered, (one, two) = asyncio.run(play(tmp_path, store, seed=seed, faults=12))
    stored = copies_in(store)
    assert done["killed"] >= 5
    assert len(answered) > 100
    assert judge(stored, answered, one.got) == []
    assert judge(stored, answered, two.got, exactly=True) == []


def test_the_judge_finds_what_is_wrong():
    stored = {("w", number): ["a~1"] for number in (1, 2, 3)}
    answered = set(stored)
    good = [Got(("w", number), number, False) for number in (1, 2, 3)]
    assert judge(stored, answered, good) == []
    assert judge(stored, answered, good[:2]) == ["('w', 3) was answered, and never came"]
    assert judge(stored, answered, [*good, good[2]]) == ["('w', 3) came 2 times unmarked, and was stored 1 times"]
    again = Got(("w", 3), 3, True)
    assert judge(stored, answered, [*good, again]) == []
    assert judge(stored, answered, [*good, again], exactly=True) == ["('w', 3) came 2 times"]
    other = Got(("w", 3), 9, True)
    assert judge(stored, answered, [*good, other]) == ["('w', 3) came under packets [3, 9], and was stored 1 times"]
    turned = [good[0], good[2], good[1]]
    assert judge(stored, answered, turned) == ["('w', 2) came behind 3, over a~1"]

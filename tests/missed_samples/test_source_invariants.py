"""The invariants of a source tell records that break them from records that do not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import SourceRecord, SourceStatus

RECOVERY = Recovery(pending=4)
GOOD = SourceRecord("p", RECOVERY, SourceStatus.RECOVERING, expected=3, top=9, held=((5, 6),), held_count=2)


def holds(clause):
    """Looked up by clause when it is needed: where it is gone, nothing tells the two apart."""
    (found,) = [one.holds for one in SOURCE.invariants if one.clause == clause]
    return found


@pytest.mark.parametrize("held", [((3, 4),), ((5, 4),), ((6, 6), (5, 5)), ((5, 6), (7, 8)), ((5, 9),)])
def test_MS_20_what_is_held_is_in_order_apart_and_between_expected_and_top(held):
    assert holds("MS-20")(GOOD)
    assert not holds("MS-20")(replace(GOOD, held=held))


@pytest.mark.parametrize("change", [{"held": ((4, 8),), "held_count": 5}, {"held_count": 1}])
def test_MS_21_no_more_is_held_than_may_be_and_it_is_counted(change):
    assert holds("MS-21")(GOOD)
    assert not holds("MS-21")(replace(GOOD, **change))


def test_MS_22_nothing_is_missing_while_it_is_live_and_something_while_it_rests():
    live = replace(GOOD, status=SourceStatus.LIVE, expected=9, held=(), held_count=0)
    rests = replace(GOOD, status=SourceStatus.RESTING)
    assert holds("MS-22")(live)
    assert holds("MS-22")(rests)
    assert not holds("MS-22")(replace(live, expected=8))
    assert not holds("MS-22")(replace(rests, expected=9, held=(), held_count=0))

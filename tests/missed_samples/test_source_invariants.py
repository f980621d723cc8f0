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

"""How the clauses of a source that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

import sys

from mutants import swap, wrap

from statemachines.kernel import Message
from statemachines.missed_samples import source_actions
from statemachines.missed_samples.message import Missed


class Sample(Message, frozen=True, gc=False):
    """A sample that may be malformed; the check of the shipped one is part of its type, and cannot be taken out."""

    source: str
    first: int
    last: int


def silent(settle):
    """What is convicted is not reported."""

    def settled(record, below):
        record, effects = settle(record, below)
        return record, tuple(effect for effect in effects if not isinstance(effect.event, Missed))

    return settled


BREAKS = {
    "MS-23": wrap(source_actions, "settle_below", silent),
    "MS-24": lambda stack: swap(sys.modules["test_source"], "Sample", Sample)(stack),
}

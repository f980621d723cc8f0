"""How the clauses of a source that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

import sys

from msgspec.structs import replace
from mutants import swap, without_choice, wrap

from statemachines.kernel import Message
from statemachines.missed_samples import sample_queue, source_actions, source_windows, subscriber_actions
from statemachines.missed_samples.message import Missed
from statemachines.missed_samples.source_record import with_asking


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


def anew(source_of):
    """The queries to a source are numbered from 1 on, whatever was before."""
    return lambda record, source: source_of(replace(record, queries=0), source)


def not_the_nearest(stack):
    """A number of the wire is taken for itself."""
    for owner in (subscriber_actions, sample_queue):
        swap(owner, "unwrapped", lambda sn, near, width: sn)(stack)


def from_0(node):
    """A publisher that starts again does not go on counting."""

    def declared(**given):
        return node(**{**given, "next": 0})

    return declared


def as_empty(end_window):
    """What came in part counts as if nobody had it."""
    return lambda record, event, now_ns: end_window(record, replace(event, brought=max(event.brought, 0)), now_ns)


def counted_ever(count_failure):
    """Tries for another first number count on."""
    return lambda record, top: count_failure(with_asking(record, front=record.expected), top)


def no_further(ask_for):
    """Nothing is asked for beyond what is known."""

    def asked(record, window):
        effect = ask_for(record, window)
        return replace(effect, request=replace(effect.request, last=window.last))

    return asked


BREAKS = {
    **{f"MS-{n}": without_choice("missed_samples", f"MS-{n}") for n in (73, 74, 75, 76, 77)},
    "MS-23": wrap(source_actions, "settle_below", silent),
    "MS-36": lambda stack: wrap(sys.modules["test_sample_properties"], "publisher", from_0)(stack),
    "MS-47": lambda stack: swap(sys.modules["test_sample_properties"], "matches", lambda expression, key: True)(stack),
    "MS-61": wrap(subscriber_actions, "source_of", anew),
    "MS-62": lambda stack: not_the_nearest(stack),
    "MS-67": swap(source_actions, "fill", lambda record, first, last: record),
    "MS-68": wrap(source_actions, "end_window", as_empty),
    "MS-69": swap(source_windows, "_reach", lambda record, first, most: (first + most - 1, 0)),
    "MS-80": wrap(source_actions, "count_failure", counted_ever),
    "MS-81": wrap(source_windows, "ask_for", no_further),
    "MS-82": lambda stack: swap(sys.modules["statemachines.drivers.missed_samples.layout"].secrets, "token_hex", str)(
        stack
    ),
    "MS-24": lambda stack: swap(sys.modules["test_source_properties"], "Sample", Sample)(stack),
}

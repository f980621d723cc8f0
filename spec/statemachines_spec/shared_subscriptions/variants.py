"""Variants: the settled protocol, and rules of the source that are unsafe as written, substituted in its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Delegate, Event, Fsm, Map, Row, in_order
from statemachines.shared_subscriptions.borrower import BORROWER
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines_spec.bug import redeclare
from statemachines_spec.explorer.variant import substitute_rows

VARIANTS = {
    "settled": "the protocol as it is shipped",
    "as_written": "the source: a borrower that deleted a stream has forgotten the number of its grant",
    "at_once": "the source: a stream is handed over without waiting for a lease to end (exclusive = false)",
}


def borrower(variant: str) -> Fsm[Any]:
    """The Borrower of a variant."""
    check_variant(variant)
    return substitute_rows(BORROWER, _forgetful) if variant == "as_written" else BORROWER


@contextmanager
def in_place(variant: str) -> Iterator[None]:
    """The shipped Borrower itself has the rules of the variant until the block ends: for hosts that know no other."""
    check_variant(variant)
    with ExitStack() as stack:
        if variant == "as_written":
            redeclare(stack, BORROWER, lambda row: [_forgetful(row) if isinstance(row, Row) else row])
        yield


def configuration(variant: str) -> Configuration:
    """The configuration of a variant.  Failed deliveries are counted in systems of their own."""
    check_variant(variant)
    return Configuration(exclusive=variant != "at_once", count_deliveries=False)


def check_variant(variant: str) -> str:
    """Itself; raises `ConfigurationError` for a variant that does not exist."""
    if variant not in VARIANTS:
        raise ConfigurationError("variant", variant, f"unknown; there are: {', '.join(VARIANTS)}")
    return variant


def _forgetful(row: Row) -> Row:
    """Every row that passes an event on to a stream: "it deletes all the stream-related data", its number included."""
    if not isinstance(row.do, Delegate):
        return row
    run = row.do.run

    @wraps(run)  # the table is the same, to the name: traces of it are judged by the shipped one
    def run_and_forget(record: Any, event: Event, now_ns: int) -> Any:
        after, effects, children = run(record, event, now_ns)
        held = Map({stream: child for stream, child in in_order(after.streams) if child.status is not ABSENT})
        return replace(after, streams=held), effects, children

    return Row(row.on, row.source, row.to, Delegate(run_and_forget), row.when, row.clause)

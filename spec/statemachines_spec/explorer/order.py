"""Order: of two deadlines of different nodes, which comes first.

The explorer knows a timer only as set or not set, so it would fire any timer at any moment.  Where the configuration
makes one deadline come before another, a system says so: the later event cannot happen while the earlier deadline is
pending.  Each order follows from a relation that is checked when a configuration is read, and can be switched off to
see what breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import msgspec

from statemachines.kernel import TimerFired
from statemachines_spec.explorer.party import PartyInput


class Order(msgspec.Struct, frozen=True):
    """`pending(actor, local)`: the earlier deadline that this node still has open (None: none); `waiting(actor, local,
    event)`: the later deadline that the event is (None: it is another event); `before(pending, waiting)`: that earlier
    deadline comes before this later one."""

    name: str
    relation: str
    pending: Callable[[str, Any], Hashable | None]
    waiting: Callable[[str, Any, Any], Hashable | None]
    before: Callable[[Any, Any], bool]


def deadline_order(
    name: str,
    relation: str,
    *,
    early: str,
    late: type[TimerFired],
    of_early: Callable[[str, Any], Hashable | None] | None = None,
    of_late: Callable[[str, Any, Any], Hashable | None] | None = None,
) -> Order:
    """The deadline of the timer `early` of one `FsmActor`, or of a party of a `ProcessActor`, comes before a firing of
    `late` of another.

    They are about the same thing where `of_early(actor, record)` (else the name of the actor) equals `of_late(actor,
    record, event)` (else the key of the timer); None: about nothing.
    """

    def pending(actor: str, local: Any) -> Hashable | None:
        records = (
            node.record for node in list_nodes(local) if any(timer == early for timer, _ in still_open(local, node))
        )
        about = {actor if of_early is None else of_early(actor, record) for record in records} - {None}
        return frozenset(about) or None

    def waiting(actor: str, local: Any, event: Any) -> Hashable | None:
        party, fired = (event.party, event.event) if isinstance(event, PartyInput) else ("", event)
        if not isinstance(fired, late):
            return None
        if of_late is None:
            return fired.key
        nodes = (node for node in list_nodes(local) if not party or node.record.id == party)
        return next((of_late(actor, node.record, fired) for node in nodes), None)

    return Order(name, relation, pending, waiting, lambda one, other: other in one)


def list_nodes(local: Any) -> tuple[Any, ...]:
    """The nodes of a component: its `party`, or those of its process."""
    parts, party = getattr(local, "parts", None), getattr(local, "party", None)
    if parts is not None:
        return tuple(one.party for one in parts.members())
    return () if party is None else (party,)


def still_open(local: Any, node: Any) -> Iterator[tuple[str, str]]:
    """The timers of the node that are set, and whose deadlines have not passed while its process stood still."""
    passed = getattr(local, "passed", ())
    for timer in node.timers:
        if timer not in passed and (getattr(node.record, "id", ""), timer) not in passed:
            yield timer

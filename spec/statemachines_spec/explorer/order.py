"""Order: of two deadlines of different nodes, which comes first.

The explorer knows a timer only as set or not set, so it would fire any timer at any moment.  Where the configuration
makes one deadline come before another, a system says so: the later event cannot happen while the earlier deadline is
pending.  Each order follows from a relation that is checked when a configuration is read, and can be switched off to
see what breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from statemachines.kernel import TimerFired


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
    """The deadline of the timer `early` of one `FsmActor` comes before a firing of `late` of another.

    They are about the same thing where `of_early(actor, record)` (else the name of the actor) equals `of_late(actor,
    record, event)` (else the key of the timer); None: about nothing.
    """

    def pending(actor: str, local: Any) -> Hashable | None:
        party = getattr(local, "party", None)
        passed = getattr(local, "passed", ())
        if party is None or not any(timer == early and (timer, key) not in passed for timer, key in party.timers):
            return None
        return actor if of_early is None else of_early(actor, party.record)

    def waiting(actor: str, local: Any, event: Any) -> Hashable | None:
        if not isinstance(event, late) or getattr(local, "party", None) is None:
            return None
        return event.key if of_late is None else of_late(actor, local.party.record, event)

    return Order(name, relation, pending, waiting, lambda one, other: one == other)

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


class Order(msgspec.Struct, frozen=True):
    """`pending(actor, local)`: the earlier deadline that this node still has open (None: none); `waiting(actor, local,
    event)`: the later deadline that the event is (None: it is another event); `before(pending, waiting)`: that earlier
    deadline comes before this later one."""

    name: str
    relation: str
    pending: Callable[[str, Any], Hashable | None]
    waiting: Callable[[str, Any, Any], Hashable | None]
    before: Callable[[Any, Any], bool]

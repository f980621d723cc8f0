"""Reads: a member that cannot read keeps no streams beyond one validity (L2)."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Node, in_order
from statemachines.shared_subscriptions.properties.time_limits import TimeLimits
from statemachines.shared_subscriptions.session_record import FETCHING
from statemachines.shared_subscriptions.stream_store import Fetched, FetchFailed
from statemachines_sim.judge import Judge


class Reads:
    """Of each session since when its reads fail, and how many have failed after it should have given up."""

    def __init__(self, judge: Judge, limits: TimeLimits) -> None:
        self._judge = judge
        self._limits = limits
        self._since: dict[str, int] = {}
        self._late: dict[str, int] = {}

    def step(self, node: Node[Any], event: Event, before: Any, now_ns: int) -> None:
        """A session hears of a read."""
        if before is not FETCHING or node.record.status is FETCHING:
            return
        if type(event) is Fetched:
            self._since.pop(node.name, None)
            self._late.pop(node.name, None)
        elif type(event) is FetchFailed:
            since_ns = self._since.setdefault(node.name, now_ns)
            failing_ns = now_ns - since_ns
            if failing_ns > self._limits.validity_ns and self._keeps(node.record):
                late = self._late[node.name] = self._late.get(node.name, 0) + 1
                self._judge.report_properties(self._limits.check_reads(node.name, failing_ns, late))

    def _keeps(self, record: Any) -> bool:
        """Something is read for a group that is not about to be given back anyway."""
        return any(reading.grant and not reading.finishing for _, reading in in_order(record.readings))

"""Reads: a member that cannot read keeps no streams beyond one validity (L2)."""

from __future__ import annotations

from typing import Any, Final

from statemachines.kernel import Event, Node, in_order
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.session_record import FETCHING
from statemachines.shared_subscriptions.stream_store import Fetched, FetchFailed
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import PPM
from statemachines_sim.shared_subscriptions.monitors.lives import TICK_NS, stretch

LATE_MAX: Final = 2
"""So many reads may still fail after a validity: a timer has patience, and a process may have stood still."""


class Reads:
    """Of each session since when its reads fail, and how many have failed after it should have given up."""

    def __init__(self, judge: Judge, configuration: Configuration) -> None:
        self._judge = judge
        self._patience_ns = stretch(configuration.validity_ms * MS, round(configuration.clock_drift * PPM)) + TICK_NS
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
            if now_ns > since_ns + self._patience_ns and self._keeps(node.record):
                late = self._late[node.name] = self._late.get(node.name, 0) + 1
                if late > LATE_MAX:
                    self._judge.report_broken(
                        "L2", f"{node.name} has read nothing for {(now_ns - since_ns) // MS} ms, and keeps its streams"
                    )

    def _keeps(self, record: Any) -> bool:
        """Something is read for a group that is not about to be given back anyway."""
        return any(reading.grant and not reading.finishing for _, reading in in_order(record.readings))

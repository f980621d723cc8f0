"""Judge: what becomes of a property that does not hold."""

from __future__ import annotations

from collections.abc import Iterable

from statemachines.kernel import BrokenProperty


class Violation(Exception):
    """`monitor` (a property of the protocol) does not hold; `detail` says what happened."""

    def __init__(self, monitor: str, detail: str) -> None:
        self.monitor = monitor
        self.detail = detail
        super().__init__(f"{monitor}: {detail}")


class Judge:
    """A property that breaks ends the run, unless the scenario puts it out of scope: then `noted` counts it, and
    `first` keeps what happened the first time.  Without `judging` nothing breaks: for runs without monitors."""

    def __init__(self, out_of_scope: tuple[str, ...] = (), *, judging: bool = True) -> None:
        self._judging = judging
        self.noted: dict[str, int] = {}
        self.first: dict[str, str] = {}
        self._out_of_scope = out_of_scope

    def report_broken(self, monitor: str, detail: str) -> None:
        """Raises `Violation` unless it is out of scope."""
        if not self._judging:
            return
        if monitor not in self._out_of_scope:
            raise Violation(monitor, detail)
        self.noted[monitor] = self.noted.get(monitor, 0) + 1
        self.first.setdefault(monitor, detail)

    def report_properties(self, broken: Iterable[BrokenProperty]) -> None:
        """The same, of what an observer has found."""
        for one in broken:
            self.report_broken(one.name, one.detail)

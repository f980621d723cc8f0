"""Answers: how long a leader waits for the answer to a grant, and for how many of one member (L11), and that it repeats
the grant until then (L2)."""

from __future__ import annotations

from collections import Counter

from statemachines.kernel import ChildStep, Effects, Message, Send, node_of
from statemachines.shared_subscriptions.assignment import GRANTING, GrantTimeout
from statemachines.shared_subscriptions.message import Grant, Ping, UpdateProgress
from statemachines.shared_subscriptions.properties.time_limits import TimeLimits
from statemachines_sim.judge import Judge


class Answers:
    """Grants that nobody has answered yet, by leader, stream and number: since when, and when they were said last."""

    def __init__(self, judge: Judge, limits: TimeLimits) -> None:
        self._judge = judge
        self._limits = limits
        self._since: dict[tuple[str, str, int], int] = {}
        self._said: dict[tuple[str, str, int], int] = {}
        self._resumed: dict[str, int] = {}
        self._leapt: set[tuple[str, str, int]] = set()
        self._open: Counter[tuple[str, str]] = Counter()

    def observe_resume(self, node: str, now_ns: int) -> None:
        """A process goes on after a pause, in which it could keep no time."""
        self._resumed[node] = now_ns

    def observe_leap(self, node: str) -> None:
        """The clock of a process leaps further than L11 assumes: what its leaders wait for now may end early."""
        self._leapt.update(granted for granted in self._since if node_of(granted[0]) == node)

    def hear(self, leader: str, message: Message) -> None:
        """What a leader is told of a grant is its answer, whether or not it is believed."""
        if isinstance(message, UpdateProgress):
            self._since.pop((leader, message.stream, message.grant), None)
        elif isinstance(message, Ping):
            for report in message.reports:
                self._since.pop((leader, report.stream, report.grant), None)

    def say(self, leader: str, effects: Effects, now_ns: int) -> None:
        """What a leader says: grants, for the first time or again."""
        for effect in effects:
            if type(effect) is Send and type(effect.message) is Grant:
                self._said[leader, effect.message.stream, effect.message.grant] = now_ns

    def step(self, leader: str, child: ChildStep, now_ns: int) -> None:
        """A step of an assignment."""
        granted = (leader, child.record.stream, child.number)
        if type(child.event) is GrantTimeout and child.record.status is not child.source:
            self._check_repeated(granted, now_ns)
            self._check_waited(granted, now_ns)
        self._count(leader, child)
        if child.record.status is not GRANTING:
            self._since.pop(granted, None)
            self._said.pop(granted, None)
            self._leapt.discard(granted)
        elif child.source is not GRANTING:
            self._since[granted] = now_ns
        self._check(leader, now_ns)

    def _count(self, leader: str, child: ChildStep) -> None:
        """So many grants of each member have no answer yet."""
        more = (child.record.status is GRANTING) - (child.source is GRANTING)
        if not more:
            return
        member = (leader, child.record.link.borrower)
        self._open[member] += more
        if broken := self._limits.check_window(leader, member[1], self._open[member]):
            self._judge.report_properties(broken)
        elif not self._open[member]:
            del self._open[member]

    def forget(self, leader: str) -> None:
        """It is gone, and with it what it waits for."""
        for member in [one for one in self._open if one[0] == leader]:
            del self._open[member]
        for book in (self._since, self._said):
            for granted in [one for one in book if one[0] == leader]:
                del book[granted]
        self._leapt = {one for one in self._leapt if one[0] != leader}

    def _check(self, leader: str, now_ns: int) -> None:
        """The oldest grant of each leader comes first."""
        oldest = next((one for one in self._since if one[0] == leader), None)
        if oldest is None:
            return
        waited_ns = now_ns - max(self._since[oldest], self._resumed.get(node_of(leader), 0))
        if broken := self._limits.check_answer(leader, oldest[2], waited_ns):
            self._judge.report_properties(broken)

    def _check_waited(self, granted: tuple[str, str, int], now_ns: int) -> None:
        """Unless the leader's clock leapt."""
        since_ns = self._since.get(granted)
        if since_ns is not None and granted not in self._leapt:
            self._judge.report_properties(self._limits.check_patience(*granted, now_ns - since_ns))

    def _check_repeated(self, granted: tuple[str, str, int], now_ns: int) -> None:
        """L2."""
        quiet_ns = now_ns - max(self._said.get(granted, 0), self._resumed.get(node_of(granted[0]), 0))
        self._judge.report_properties(self._limits.check_repeated(*granted, quiet_ns))

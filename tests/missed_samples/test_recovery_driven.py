"""All parties under Hypothesis: two publishers, caches that hold everything, a subscriber, and any moves."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from samples_world import World

from statemachines.missed_samples.message import Deliver, Heartbeat, Missed
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source_record import SourceStatus
from statemachines.missed_samples.subscriber_record import History

SOURCES = st.sampled_from(("p", "q"))


class Parties(RuleBasedStateMachine):
    """Queries that bring nothing, or never end, are so few that attempts last: whatever the caches have must come."""

    @initialize(width=st.sampled_from((64, 4)), history=st.sampled_from((None, History())))
    def begin(self, width, history):
        self.world = World(width=width, history=history, past=True, retries=40, pending=500, retention_ms=10**9)
        for name in ("p", "q"):
            self.world.publisher(name)
            self.world.cache(name, owner=name, history=500 if width == 64 else 7)

    @rule(name=SOURCES, count=st.integers(1, 2), lost=st.booleans())
    def publish(self, name, count, lost):
        if self.world.width == 4 and self.behind(name) + count > 6:
            return  # more than half of the wire's numbers would be in question
        self.world.publish(name, count, lost=lost)

    @precondition(lambda self: self.world.open)
    @rule(at=st.integers(0, 3))
    def answer(self, at):
        self.world.answer(at % len(self.world.open))

    @precondition(lambda self: self.world.open)
    @rule(at=st.integers(0, 3))
    def end_empty(self, at):
        self.world.end_empty(at % len(self.world.open))

    @rule()
    def tick(self):
        """To the next timer, but for those that wait for a source to be silent: then it is forgotten, and met anew."""
        deadline = self.world.node.deadline()
        if deadline is not None and deadline - self.world.now < 10_000 * MS:
            self.world.tick()

    def behind(self, name):
        """How many numbers of the source are not settled."""
        told = [one for one in self.world.told if one.source == name]
        settled = sum(one.last - one.first + 1 for one in told)
        return self.world.publishers[name].record.next - settled

    def told(self, name):
        return [number for one in self.world.told if one.source == name for number in range(one.first, one.last + 1)]

    @invariant()
    def ORDER_ONCE_REPORT_what_is_told_has_no_gap(self):
        assert not hasattr(self, "world") or self.world.broken == []

    def teardown(self):
        """The network heals: every number is said, every query answered; everything is told, and nothing missed."""
        if not hasattr(self, "world"):
            return
        world = self.world
        while world.open:
            world.answer()
        for name in ("p", "q"):
            node = world.publishers[name]
            if node.record.next:
                world.tell(Heartbeat(name, wrap_number(node.record.next - 1, world.width)))
            while name in world.node.record.sources and world.source(name).status in (
                SourceStatus.RECOVERING,
                SourceStatus.RESTING,
            ):
                world.answer() if world.open else world.tick()
        for name in ("p", "q"):
            told = self.told(name)
            last = world.publishers[name].record.next - 1
            assert not told or told[-1] % (1 << world.width) == wrap_number(last, world.width)
            if world.width == 64:
                assert world.numbers(Missed, name) == []
                assert world.numbers(Deliver, name) == told


TestParties = Parties.TestCase
TestParties.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)

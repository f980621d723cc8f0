"""ORDER, REPORT, NOGAP, QUIET and SETTLED over a memory network that loses, copies and reorders: answers are lost or
late, publishers start again, and streams begin anew.  What was published is counted, and nobody is asked."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from statemachines.drivers import sequence_windows
from statemachines.sequence_windows.properties.handed_messages import HandedMessages, judge_query, judge_sum

S = 1_000_000_000
MS = 1_000_000
T = 1659131646 * S
SUBJECTS = ("a", "b")
PUBLISHERS = ("p", "q")


class Told:
    """What is known of one publisher and subject, by the ordinals of its messages."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.arrived: set[int] = set()
        self.brought: set[int] = set()
        self.handed = HandedMessages()
        self.lost = 0

    def take(self, one: sequence_windows.Delivery) -> None:
        ordinal = int(one.payload)
        assert self.numbers[ordinal] == one.number
        first = one.verdict is sequence_windows.Verdict.FIRST
        assert first is (self.handed.last < 0), one
        handed, broken = self.handed.observe(ordinal, one.verdict, one.lost, one.unknown, self.brought)
        self.handed, unsaid = handed.attach_loss(one.lost)
        assert (*broken, *unsaid) == (), one
        self.lost += one.lost


class Network(RuleBasedStateMachine):
    """A memory network under Hypothesis' hands."""

    recovery = sequence_windows.Recovery(retries=1, timeout_ms=100, backoff_ms=10, backoff_max_ms=20)
    held_bytes_max = 1 << 20

    @initialize(history=st.sampled_from([1, 3, 50]), at_once=st.booleans())
    def begin(self, history: int, at_once: bool) -> None:
        self.wall, self.now = T, 0
        self.history, self.at_once = history, at_once
        self.told: dict[tuple[str, str], Told] = {}
        self.wire: list[tuple[str, str, int, bytes]] = []
        self.numbers: dict[bytes, int] = {}
        self.queries: list[Any] = []
        self.lives = dict.fromkeys(PUBLISHERS, 0)
        self.ids: dict[str, sequence_windows.SequencedPublisher] = {}
        self.losses = 0
        for name in PUBLISHERS:
            self.start(name)
        self.subscriber = sequence_windows.SequencedSubscriber(
            self.deliver,
            on_loss=self.lose,
            everything=True,
            recovery=self.recovery,
            ask=self.ask,
            held_bytes_max=self.held_bytes_max,
            wall=lambda: self.wall,
            now=lambda: self.now,
        )

    def start(self, name: str) -> None:
        self.lives[name] += 1
        identity = f"{name}~{self.lives[name]}"
        clocks = {"wall": lambda: self.wall, "now": lambda: self.now}
        window = sequence_windows.Window(1, 10 * S)
        self.ids[name] = sequence_windows.SequencedPublisher(
            lambda data: None, publisher=identity, history=self.history, window=window, **clocks
        )
        self.ids[name]._send = self.put

    def put(self, data: bytes) -> None:
        self.sent = data

    def of(self, publisher: str, subject: str) -> Told:
        return self.told.setdefault((publisher, subject), Told())

    # -- what the receiver says -------------------------------------------------------------------------------

    def deliver(self, one: sequence_windows.Delivery) -> None:
        self.of(one.publisher, one.subject).take(one)

    def lose(self, loss: Any) -> None:
        self.losses += loss.lost
        told = self.of(loss.publisher, loss.subject)
        told.handed, broken = told.handed.tell_loss(loss.lost)
        assert broken == ()

    def ask(self, query: Any) -> None:
        told = self.of(query.publisher, query.subject)
        ends = tuple(told.numbers.index(number) for number in (query.first, query.last))
        assert query.first >> 35 == query.last >> 35
        lost = set(range(len(told.numbers))) - told.arrived
        follows = any(one < ends[0] and told.numbers[one] >> 35 == query.first >> 35 for one in told.arrived)
        assert judge_query(ends, lost, follows) == ()
        self.queries.append(query)
        if self.at_once:
            self.answer_all(query)

    def answer_all(self, query: Any) -> None:
        name = query.publisher.partition("~")[0]
        for data in self.ids[name].answer(query):
            self.bring(query, data)
        self.subscriber.close_query(query, self.ids[name].publisher == query.publisher)

    def bring(self, query: Any, data: bytes) -> None:
        told = self.of(query.publisher, query.subject)
        ordinal = told.numbers.index(self.numbers[data])
        if ordinal > told.handed.last:
            told.brought.add(ordinal)
        self.subscriber.receive_recovered(data)

    # -- what happens -----------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(PUBLISHERS), subject=st.sampled_from(SUBJECTS), count=st.integers(1, 4))
    def publish(self, name: str, subject: str, count: int) -> None:
        one = self.ids[name]
        told = self.of(one.publisher, subject)
        for _ in range(count):
            ordinal = len(told.numbers)
            number = one.publish(subject, b"%d" % ordinal)
            told.numbers.append(number)
            self.numbers[self.sent] = number
            self.wire.append((one.publisher, subject, ordinal, self.sent))

    @precondition(lambda self: self.wire)
    @rule(count=st.integers(1, 6))
    def arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.wire))):
            self.receive(self.wire.pop(0))

    @precondition(lambda self: self.wire)
    @rule(count=st.integers(1, 3))
    def lose_some(self, count: int) -> None:
        del self.wire[:count]

    @precondition(lambda self: self.wire)
    @rule(place=st.integers(0, 30), again=st.booleans())
    def overtake(self, place: int, again: bool) -> None:
        place %= len(self.wire)
        self.receive(self.wire[place] if again else self.wire.pop(place))

    def receive(self, carried: tuple[str, str, int, bytes]) -> None:
        publisher, subject, ordinal, data = carried
        self.of(publisher, subject).arrived.add(ordinal)
        self.subscriber.receive(data)

    @precondition(lambda self: self.queries)
    @rule(place=st.integers(0, 30), lost=st.sets(st.integers(0, 5), max_size=3), again=st.booleans())
    def answer(self, place: int, lost: set[int], again: bool) -> None:
        """Some of the answer may be lost, then it does not end well; the query may be a late one, and come twice."""
        place %= len(self.queries)
        query = self.queries[place] if again else self.queries.pop(place)
        name = query.publisher.partition("~")[0]
        alive = self.ids[name].publisher == query.publisher
        replies = self.ids[name].answer(query)
        for n, data in enumerate(replies):
            if n not in lost:
                self.bring(query, data)
        self.subscriber.close_query(query, alive and not lost & set(range(len(replies))))

    @precondition(lambda self: self.queries)
    @rule(place=st.integers(0, 30), replied=st.just(False))
    def end(self, place: int, replied: bool) -> None:
        self.subscriber.close_query(self.queries.pop(place % len(self.queries)), replied)

    @rule(ms=st.sampled_from([1, 15, 60, 130]))
    def pass_time(self, ms: int) -> None:
        self.now += ms * MS
        self.subscriber.poll()

    @rule(name=st.sampled_from(PUBLISHERS))
    def restart(self, name: str) -> None:
        self.start(name)

    @rule(name=st.sampled_from(PUBLISHERS))
    def begin_anew(self, name: str) -> None:
        """With a CHAIN."""
        self.wall += 20 * S
        self.ids[name].start_new_streams()

    @rule(name=st.sampled_from(PUBLISHERS))
    def forget(self, name: str) -> None:
        """Without one: its window turns, and all that is held waits so long."""
        for _ in range(2):
            self.wall += 11 * S
            self.tick(11 * S)
            self.ids[name].poll()

    def tick(self, ns: int) -> None:
        end = self.now + ns
        while (due := self.subscriber.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.subscriber.poll()
        self.now = end

    # -- what must hold ---------------------------------------------------------------------------------------

    @invariant()
    def sums_agree(self) -> None:
        if not hasattr(self, "subscriber"):
            return
        counted = sum(row.lost for row in self.subscriber.losses().rows)
        assert judge_sum(self.losses, counted) == judge_sum(sum(one.lost for one in self.told.values()), counted) == ()
        assert self.subscriber.failed == 0

    def teardown(self) -> None:
        if not hasattr(self, "subscriber"):
            return
        self.tick(3 * 120 * MS * 3)
        held = self.subscriber._held
        assert held is not None
        runner = held._runner
        assert (len(held), held.bytes, runner.record.runs, runner.nodes, held.deadline()) == (0, 0, 0, {}, None)
        for place, told in self.told.items():
            assert told.handed.list_open(told.arrived) == [], place
        self.sums_agree()


class Crowded(Network):
    """The same where there is hardly any place, or room."""

    recovery = sequence_windows.Recovery(
        retries=1, timeout_ms=100, backoff_ms=10, backoff_max_ms=20, sources=2, pending=3
    )
    held_bytes_max = 1_500

    def bring(self, query: Any, data: bytes) -> None:
        """What is brought may still be given up with the rest, in order to make room."""
        self.subscriber.receive_recovered(data)


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCrowded = Crowded.TestCase
TestCrowded.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)

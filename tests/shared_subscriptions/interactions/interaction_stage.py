"""Stage: one leader host and some consumers, whose every message waits until the script says what becomes of it.

A script is text.  A line that is not indented is an input, the indented lines below it are all that came of it; `#`
begins a comment.  Times are milliseconds; no time passes but by `at` and `run`.

    start NODE                   the consumer NODE subscribes
    deliver N [N ...]            messages arrive, by the numbers they were sent under (#N)
    deliver all                  so does everything that is under way, and what comes of it
    again N                      another copy of a message arrives
    lose N [N ...]               messages never arrive
    at T                         the time is T: timers fire, messages wait
    run T                        until T messages arrive at once, and timers fire
    publish TOPIC COUNT          messages are in the stream store
    take NODE COUNT              the application of NODE takes that many messages at most
    ack NODE                     it has dealt with all it took
    unsubscribe NODE             the client of NODE unsubscribes
    say FROM TO MESSAGE F=V ...  a message that nobody here sent arrives
    late PARTY TIMER             a timer of PARTY fires that was cancelled too late
    quietly INPUT                as INPUT, and what comes of it is not shown: for what a script begins with; the numbers
                                 of messages begin anew

Shown are the steps of borrowers, streams, members and assignments, with the clause of the row taken; of leaders
the steps on messages and the changes of status; and what is sent and delivered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from statemachines.kernel import Ask, Event, HostLoop, Message, Send, incarnation, name_of, node_of
from statemachines.kernel.loop import Act, Feed
from statemachines.shared_subscriptions import group_store, message, stream_store
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.handler import Subscription
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderMessage, Report
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.session import Acknowledged, Deliver
from statemachines.shared_subscriptions.stream_store import Append, StreamStore

LEADER_HOST = "leader-1"
MESSAGES = {
    name_of(kind): kind for kind in vars(message).values() if isinstance(kind, type) and issubclass(kind, Message)
}
ROUNDS_MAX = 10_000


class Way(NamedTuple):
    """A message under way."""

    sender: str
    to: str
    message: Message


class Place:
    """Where a host of the script lives: the port of its effects."""

    def __init__(self, stage: Stage, node: str, host: Registry | Subscription) -> None:
        self._stage = stage
        self._node = node
        self.host: Any = host
        self.loop = HostLoop(host, self, lambda: stage.now_ns)

    def perform(self, party: str, effect: Send | Ask, feed: Feed) -> None:
        """Messages wait for the script; stores answer at once."""
        if isinstance(effect, Send):
            self._stage.send(Way(party, effect.to, effect.message))
        else:
            for answer in self._stage.ask(effect.service, effect.request):
                feed(party, answer)

    def route_tell(self, party: str, event: Event) -> None:
        """Something for the application."""
        self._stage.tell(self._node, event)


class Stage:
    """`play(line)` does what an input says and gives the lines of what came of it."""

    def __init__(self, group: str = "g", topic_filter: str = "#") -> None:
        self.now_ns = 0
        self._group, self._filter = group, topic_filter
        self._lines: list[str] = []
        self._sent: dict[int, Way] = {}
        self._waiting: dict[int, Way] = {}
        self._taken: dict[str, list[Deliver]] = {}
        self._services: dict[str, Any] = {group_store.SERVICE: GroupStore(), stream_store.SERVICE: StreamStore()}
        self._states = {name: service.initial() for name, service in self._services.items()}
        registry = Registry(incarnation(LEADER_HOST, 1), Configuration(), observe=self._see, check=True)
        self._places = {LEADER_HOST: Place(self, LEADER_HOST, registry)}

    def play(self, line: str) -> list[str]:
        """Raises `ValueError` for an input that does not exist or does not fit."""
        words = line.split()
        quiet = words[0] == "quietly"
        words = words[quiet:]
        inputs: dict[str, Callable[..., None]] = {
            "start": self._start, "deliver": self._deliver, "again": self._again, "lose": self._lose, "at": self._at,
            "run": self._run, "publish": self._publish, "take": self._take, "ack": self._ack,
            "unsubscribe": self._unsubscribe, "say": self._say, "late": self._late,
        }  # fmt: skip
        if not words or words[0] not in inputs:
            raise ValueError(f"{line!r} is no input; inputs begin with {', '.join(inputs)}")
        self._lines = []
        try:
            inputs[words[0]](*words[1:])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{line!r} does not fit: {error}") from error
        if not quiet:
            return self._lines or ["nothing"]
        if not self._waiting:
            self._sent.clear()
        return []

    # -- inputs -------------------------------------------------------------------------------------------------

    def _start(self, node: str) -> None:
        consumer = Subscription(
            incarnation(node, 1),
            self._group,
            self._filter,
            LEADER_HOST,
            Configuration(),
            start_ns=0,
            observe=self._see,
            check=True,
        )
        self._places[node] = Place(self, node, consumer)
        self._run_at(node, consumer.start)

    def _deliver(self, *numbers: str) -> None:
        if numbers != ("all",):
            for number in numbers:
                self._arrive(self._waiting.pop(int(number)))
            return
        for _ in range(ROUNDS_MAX):
            if not self._waiting:
                return
            self._arrive(self._waiting.pop(min(self._waiting)))
        raise ValueError(f"messages lead to messages without end, after {ROUNDS_MAX} of them")

    def _again(self, number: str) -> None:
        self._arrive(self._sent[int(number)])

    def _lose(self, *numbers: str) -> None:
        for number in numbers:
            way = self._waiting.pop(int(number))
            self._lines.append(f"lost: {name_of(type(way.message))} of {way.sender}")

    def _at(self, time_ms: str) -> None:
        end = int(time_ms) * MS
        while (deadline := self._deadline()) is not None and deadline <= end:
            self._fire(deadline)
        self.now_ns = end

    def _run(self, time_ms: str) -> None:
        end = int(time_ms) * MS
        self._deliver("all")
        while (deadline := self._deadline()) is not None and deadline <= end:
            self._fire(deadline)
            self._deliver("all")
        self.now_ns = end

    def _publish(self, topic: str, count: str) -> None:
        (answer,) = self.ask(stream_store.SERVICE, Append(0, topic, int(count)))
        self._lines.append(f"{answer.stream} has messages {answer.first} to {answer.last}")

    def _take(self, node: str, count: str) -> None:
        self._run_at(node, lambda now_ns: self._places[node].host.take_messages(int(count), now_ns))

    def _ack(self, node: str) -> None:
        host = self._places[node].host
        for done in self._taken.pop(node):
            held = (done.owner, done.stream, done.grant, done.first, done.last)
            self._run_at(node, lambda now_ns, held=held: host.acknowledge(*held, now_ns))  # type: ignore[misc]

    def _unsubscribe(self, node: str) -> None:
        self._run_at(node, self._places[node].host.end)

    def _say(self, sender: str, to: str, name: str, *fields: str) -> None:
        kind = MESSAGES[name]
        given = dict(field.split("=", 1) for field in fields)
        values: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            if field.name in given:
                text = given.pop(field.name)
                values[field.name] = text if field.type is str else msgspec.json.decode(text, type=field.type)
        if given:
            raise ValueError(f"{name} has no {', '.join(given)}")
        self._arrive(Way(sender, to, kind(**values)))

    def _late(self, party: str, timer: str) -> None:
        place = self._places[node_of(party)]
        place.loop.feed(party, place.host.nodes[party].fsm.timer_registry()[timer]())

    # -- what happens -------------------------------------------------------------------------------------------

    def _arrive(self, way: Way) -> None:
        node = node_of(way.to)
        is_registry = isinstance(self._places[node].host, Registry)
        assert isinstance(way.message, BorrowerMessage if is_registry else LeaderMessage)
        self._run_at(node, lambda now_ns: self._places[node].host.receive(way.sender, way.to, way.message, now_ns))

    def _run_at(self, node: str, act: Act) -> None:
        self._places[node].loop.run(act)

    def send(self, way: Way) -> None:
        """A message is under way."""
        number = len(self._sent) + 1
        self._sent[number] = self._waiting[number] = way
        self._lines.append(f"#{number} {way.sender} -> {way.to}: {show(way.message)}")

    def ask(self, service: str, request: Any) -> Any:
        """A store carries a request out."""
        self._states[service], answers = self._services[service].apply(self._states[service], request, self.now_ns)
        return answers

    def tell(self, node: str, event: Any) -> None:
        """An application is told something."""
        if isinstance(event, Deliver):
            self._taken.setdefault(node, []).append(event)
            self._lines.append(f"{node} gets {event.first} to {event.last} of {event.stream}")
        elif isinstance(event, Acknowledged):
            self._lines.append(f"{node} has dealt with {event.first} to {event.last} of {event.stream}")

    def _deadline(self) -> int | None:
        deadlines = [place.loop.deadline() for place in self._places.values()]
        return min((one for one in deadlines if one is not None), default=None)

    def _fire(self, deadline: int) -> None:
        self.now_ns = max(self.now_ns, deadline)
        for _, place in sorted(self._places.items()):
            due = place.loop.deadline()
            if due is not None and due <= self.now_ns:
                place.loop.fire()

    def _see(self, node: Any, event: Any, before: Any, step: Any, now_ns: int) -> None:
        machine, after = node.fsm.name, step.record.status
        if machine == "borrower" or (machine == "leader" and (isinstance(event, Message) or after is not before)):
            self._lines.append(f"{node.name} {move(node.fsm, event, before, after, step.row)}")
        for child in step.children:
            self._lines.append(
                f"{node.name} {child.instance} {move(child.fsm, child.event, child.source, child.dest, child.row)}"
            )


def move(fsm: Any, event: Any, before: Any, after: Any, row: int) -> str:
    """`borrower grant: connecting, ignored [SS-04]`."""
    line = fsm.lines[row]
    what = f"{before.value} -> {after.value}" if after is not before else before.value
    return f"{fsm.name} {name_of(type(event))}: {what}{', ignored' if line.kind == 'ignore' else ''} [{line.clause}]"


def show(one: Message) -> str:
    """A message without the borrower that it comes from or goes to."""
    fields = ((name, getattr(one, name)) for name in one.__struct_fields__ if name != "borrower")
    return " ".join((name_of(type(one)), *(f"{name}={text(value)}" for name, value in fields)))


def text(value: Any) -> str:
    """A field as scripts have it."""
    if isinstance(value, tuple):
        return "[" + " ".join(text(one) for one in value) + "]"
    if isinstance(value, Report):
        return f"{value.stream}#{value.grant}@{value.progress}{' finished' if value.finished else ''}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def perform(script: str) -> str:
    """The script with what really comes of its inputs; raises `ValueError` with the line of one that is wrong."""
    stage, out = Stage(), []
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith(" "):
            continue
        out.append(line)
        if not line or line.startswith("#"):
            continue
        try:
            out.extend(f"    {one}" for one in stage.play(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return "\n".join(itertools.chain(out, ("",)))

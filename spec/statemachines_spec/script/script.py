"""Schedule: a run as a list of steps that any runtime can carry out: who acts, which message arrives, when.

A counterexample of the explorer becomes one (`scheduling`); the simulator and the asyncio runtime follow it
(`conductor`).  A message is named by what it is, between which nodes, what it is about, and the step in which it was
sent; no number of the explorer's is in it.  Each step has a time, so that every timer that fires is due just then.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from statemachines.kernel import ConfigurationError, name_of
from statemachines.shared_subscriptions.configuration import Configuration

FORMAT: Final = "gapless schedule 1"
SIZE_MAX: Final = 2**20
"""Bytes of a file."""

STEPS_MAX: Final = 10_000
LASTS_MAX_NS: Final = 24 * 3_600 * 10**9
"""A run lasts a day at most: sessions look for messages many times a second."""

Text = Annotated[str, msgspec.Meta(max_length=200)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=LASTS_MAX_NS)]
Node = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]
Consumer = Annotated[str, msgspec.Meta(pattern=r"^consumer-[1-9][0-9]{0,3}$")]
Host = Annotated[str, msgspec.Meta(pattern=r"^leader-[1-9][0-9]{0,3}$")]
Topic = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]

OwnTime = Literal["find_leader_ms", "resend_interval_ms"]
Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=2**40)]

Do = Literal[
    "start", "fire", "deliver", "copy", "drop", "acknowledge", "finish", "unsubscribe", "crash", "pause", "wake", "pass"
]
"""What happens in a step, at its `node`:

start, crash, pause, wake: to the process; fire: its timer (or several, after a pause) is due; deliver, copy, drop: a
message arrives, arrives and stays in flight as well, is lost; acknowledge: its application takes one message and
acknowledges it; finish: its session has said all about a stream that is to be finished; unsubscribe; pass: time."""

_PROCESS = ("consumer", "leader host")
WHO: Final = {
    "start": ("consumer",),
    "acknowledge": ("consumer",),
    "finish": ("consumer",),
    "unsubscribe": ("consumer",),
    "fire": _PROCESS,
    "crash": _PROCESS,
    "pause": _PROCESS,
    "wake": _PROCESS,
}
"""Who does what; everything else is done by anybody."""

MESSAGES: Final = ("deliver", "copy", "drop")


class Words(msgspec.Struct, frozen=True):
    """What a message is called: name of the event, nodes, the stream it is about, whether it is the last word on it."""

    what: str
    sender: str
    to: str
    about: str = ""
    final: bool = False

    def __str__(self) -> str:
        about = f" about {self.about}" if self.about else ""
        return f"{self.what}{' (final)' if self.final else ''}{about} from {self.sender} to {self.to}"


def words_of(event: Any, sender: str, to: str) -> Words:
    """What a message, or a request to a store, is called between two nodes."""
    about, final = getattr(event, "stream", ""), bool(getattr(event, "finished", False))
    return Words(name_of(type(event)), sender, to, about, final)


class Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message that is sent in a step; `lost`: the network has no room for it."""

    what: Text
    sender: Node
    to: Node
    about: Text = ""
    final: bool = False
    lost: bool = False

    @property
    def words(self) -> Words:
        """What the message is called."""
        return Words(self.what, self.sender, self.to, self.about, self.final)


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Step `n` at `at_ns`.  `what`, `about`: the event, and the stream (or key of a timer) it is about.  Of a message:
    `sender`, `final`, and that it is the `nth` (from 0) of that name that was sent in step `sent_in`."""

    n: Count
    at_ns: Nanoseconds
    do: Do
    node: Node
    what: Text = ""
    about: Text = ""
    sender: Text = ""
    final: bool = False
    sent_in: Count = 0
    nth: Count = 0
    sends: Annotated[tuple[Sent, ...], msgspec.Meta(max_length=1_000)] = ()

    @property
    def words(self) -> Words:
        """What the message is called that the step is about."""
        return Words(self.what, self.sender, self.node, self.about, self.final)

    def __str__(self) -> str:
        if self.do in MESSAGES:
            return f"{self.do} {self.words}, sent in step {self.sent_in}"
        return " ".join(filter(None, (self.do, self.node, self.what, self.about)))


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of `protocol`: who takes part, in which `variant` of the rules (with which planted `bug`), and its steps.

    `consumers`: node -> the leader host it asks; `messages` are in the stream of each of `topics` from the start, the
    group is read from the beginning.  `breaks`: the property that does not hold at the end.  `times`: node -> times of
    its own, where it has others than `configuration`, so that no timer is due where the run has it open.  `timers`:
    those that the explored system leaves out, and that may fire here all the same.
    """

    format: Literal["gapless schedule 1"]
    protocol: Literal["shared_subscriptions"]
    system: Text
    variant: Text
    bug: Text
    breaks: Text
    why: Text
    group: Topic
    configuration: Configuration
    times: Annotated[dict[Node, dict[OwnTime, Milliseconds]], msgspec.Meta(max_length=100)]
    consumers: Annotated[dict[Consumer, Host], msgspec.Meta(max_length=100)]
    hosts: Annotated[tuple[Host, ...], msgspec.Meta(min_length=1, max_length=9)]
    topics: Annotated[tuple[Topic, ...], msgspec.Meta(min_length=1, max_length=100)]
    messages: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    timers: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1_000)]
    steps: Annotated[tuple[Step, ...], msgspec.Meta(max_length=STEPS_MAX)]

    def check(self) -> Schedule:
        """Itself; raises `ConfigurationError` that names the step where something cannot be."""
        self.configuration.check()
        for consumer, host in self.consumers.items():
            if host not in self.hosts:
                raise ConfigurationError(f"consumers.{consumer}", host, f"must be one of {', '.join(self.hosts)}")
        for node in self.times:
            if node not in self.consumers and node not in self.hosts:
                raise ConfigurationError("times", node, "is neither a consumer nor a leader host of this schedule")
        _Checker(self).check()
        return self

    def configuration_of(self, node: str) -> Configuration:
        """With the node's own times."""
        return msgspec.structs.replace(self.configuration, **self.times.get(node, {})).check()


class _Checker:
    """Looks at the steps in turn: their order in time, who acts, and that each message is there to be had."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._nodes = {*schedule.consumers, *schedule.hosts, "group_store", "stream_store"}
        self._started: set[str] = set()
        self._there: set[tuple[int, Words, int]] = set()
        self._number = 0
        self._at_ns = 0

    def check(self) -> None:
        for step in self._schedule.steps:
            self._check_step(step)
            counted: Counter[Words] = Counter()
            for sent in step.sends:
                if not sent.lost:
                    self._there.add((step.n, sent.words, counted[sent.words]))
                    counted[sent.words] += 1

    def _check_step(self, step: Step) -> None:
        if step.at_ns < self._at_ns:
            raise _wrong(step, step.at_ns, f"comes before the step before it ({self._at_ns})")
        if step.at_ns > LASTS_MAX_NS:
            raise _wrong(step, step.at_ns, f"a run lasts {LASTS_MAX_NS} ns at most")
        self._at_ns = step.at_ns
        if step.n <= self._number and step.do != "start":
            raise _wrong(step, step.n, f"steps are numbered upwards, and {self._number} came before")
        self._number = max(self._number, step.n)
        for node in (step.node, *(name for sent in step.sends for name in (sent.sender, sent.to))):
            if node not in self._nodes:
                raise _wrong(step, node, f"no such node; there are: {', '.join(sorted(self._nodes))}")
        kind = "consumer" if step.node in self._schedule.consumers else "leader host"
        kind = kind if kind == "consumer" or step.node in self._schedule.hosts else "store"
        if kind not in WHO.get(step.do, ("consumer", "leader host", "store")):
            raise _wrong(step, step.node, f"a {kind} cannot {step.do}: it must be a {' or '.join(WHO[step.do])}")
        if step.do == "start":
            if step.node in self._started:
                raise _wrong(step, step.node, "is started already")
            self._started.add(step.node)
        elif step.node in self._schedule.consumers and step.node not in self._started:
            raise _wrong(step, step.node, "is not started yet")
        if step.do in MESSAGES:
            self._check_message(step)

    def _check_message(self, step: Step) -> None:
        place = (step.sent_in, step.words, step.nth)
        if place not in self._there:
            raise _wrong(step, str(step.words), f"no such message is in flight, sent in step {step.sent_in}")
        if step.do != "copy":
            self._there.remove(place)


def _wrong(step: Step, value: object, rule: str) -> ConfigurationError:
    return ConfigurationError(f"schedule, step {step.n}", value, rule)


def encode(schedule: Schedule) -> bytes:
    """As JSON, a step a line."""
    text = msgspec.json.format(msgspec.json.encode(schedule), indent=1).decode()
    head, mark, _ = text.partition('"steps": [')
    if not mark or not schedule.steps:
        return text.encode() + b"\n"
    steps = ",\n".join("  " + msgspec.json.encode(step).decode() for step in schedule.steps)
    return f"{head}{mark}\n{steps}\n ]\n}}\n".encode()


def write(path: Path, schedule: Schedule) -> None:
    """The file is there whole, or not at all.  Raises `ConfigurationError` where it cannot be written."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(encode(schedule))
        os.replace(partial, path)
    except OSError as error:
        raise ConfigurationError("schedule", str(path), f"cannot be written: {error.strerror}") from error


def looks_like_one(head: bytes) -> bool:
    """Whether a file that begins like this says that it is a schedule."""
    return re.match(rb'\s*\{\s*"format"\s*:\s*"gapless schedule', head) is not None


def read(path: Path) -> Schedule:
    """The schedule in a file; raises `ConfigurationError` for anything else."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX + 1)
    except OSError as error:
        raise ConfigurationError("schedule", str(path), f"cannot be read: {error.strerror}") from error
    if len(data) > SIZE_MAX:
        raise ConfigurationError("schedule", str(path), f"has more than {SIZE_MAX} bytes; a schedule is smaller")
    try:
        return msgspec.json.decode(data, type=Schedule).check()
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigurationError("schedule", str(path), f"is not a schedule: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}: {error.key}", error.value, error.rule) from error

"""Scenario: what a simulated run is made of, read from a TOML file.

Times carry their unit in the name (`_ms`, `_s`).  A range `[low, high]` is drawn from the seed.  Everything that is not
said has the default below; an unknown key, a value of another type or out of its bounds is a `ConfigurationError` that
names the file, the key and the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import start_of
from statemachines.shared_subscriptions.stream_store import matches, parse_filter

_HERE = Path(__file__).parent
FOLDERS = (_HERE / "scenarios", _HERE.parent / "scenarios")
"""Where the scenarios of the package are: in the wheel, in the repository."""

Range = tuple[int, int]

PROPERTIES: Final = tuple(f"S{number}" for number in range(1, 15)) + tuple(f"L{number}" for number in range(1, 11))
"""The properties of the protocol, by the names of its page."""


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is published, and how consumers deal with it."""

    topics: int = 8
    messages: int = 2_500
    batch: int = 25
    """Messages of one publish, all of one topic."""
    take: int = 4
    """Messages a consumer takes at a time."""
    work_ms: Range = (10, 120)
    """How long it takes to deal with them."""
    start: str = "beginning"
    """Where the group begins that the first subscribe declares: "now" or "beginning"."""
    rotate_s: tuple[float, ...] = ()
    """When the stream store begins a new generation."""
    drop_s: tuple[float, ...] = ()
    """When it drops all generations but the current one, read or not."""
    stray: int = 0
    """Messages on topics of two levels (`stray/t000`), which the subscription must not match: nobody is to get them."""


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who takes part: all from the start, each consumer beside one of the `leaders` (hosts), which it asks first;
    `join_s` more consumers later; `leave_s`: one unsubscribes;
    `resubscribe_s`: one unsubscribes and subscribes again, ten times in quick succession."""

    consumers: int = 3
    leaders: int = 1
    join_s: tuple[float, ...] = ()
    leave_s: tuple[float, ...] = ()
    resubscribe_s: tuple[float, ...] = ()


class Net(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network between faults.  A share `tail` of the messages is held back for up to `tail_ms`, others overtake."""

    delay_ms: Range = (1, 5)
    tail: float = 0.02
    tail_ms: int = 600


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many faults of each kind a seed draws for the safety phase, `[low, high]`; what each does, and in which unit,
    says the table at the head of `fault.py`."""

    crash: Range = (0, 0)
    lost_disk: Range = (0, 0)
    leader_crash: Range = (0, 0)
    pause: Range = (0, 0)
    long_pause: Range = (0, 0)
    slow_consumer: Range = (0, 0)
    skew: Range = (0, 0)
    drift: Range = (0, 0)
    jump: Range = (0, 0)
    far_jump: Range = (0, 0)
    loss: Range = (0, 0)
    duplicate: Range = (0, 0)
    reorder: Range = (0, 0)
    hold_back: Range = (0, 0)
    partition: Range = (0, 0)
    store: Range = (0, 0)
    slow_store: Range = (0, 0)
    store_crash: Range = (0, 0)
    torn_write: Range = (0, 0)
    power_loss: Range = (0, 0)
    late_timer: Range = (0, 0)
    halt: Range = (0, 0)
    unsubscribe: Range = (0, 0)


class Swarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each seed draws for itself.  A range that is not given leaves the scenario's own value."""

    share: float = 0.5
    """The chance of each kind of fault in `[faults]` to take part; of the rates, a random part is used."""
    consumers: Range | None = None
    messages: Range | None = None
    topics: Range | None = None
    batch: Range | None = None
    take: Range | None = None
    work_ms: Range | None = None
    """How long a batch takes at most."""
    delay_ms: Range | None = None
    """How long a message takes at most, without faults."""
    tail: tuple[float, float] | None = None


class Phases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults fall in the safety phase; then everything heals, and the liveness properties must come true in time."""

    safety_s: float = 40.0
    liveness_s: float = 120.0


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scenario."""

    name: str
    about: str = ""
    subscription: str = "$shared/workers/#"
    load: Load = Load()
    members: Members = Members()
    network: Net = Net()
    faults: Faults = Faults()
    rates: tuple[float, ...] = (0.05, 0.2, 0.5, 0.9)
    """The shares of messages or requests that a fault hits: each fault has one of these."""
    phases: Phases = Phases()
    configuration: Configuration = Configuration()
    swarm: Swarm | None = None
    out_of_scope: tuple[str, ...] = ()
    """Properties that the faults of this scenario may break, being beyond what the protocol promises to bear: they are
    counted, and end no run."""

    def check(self) -> Scenario:
        """Itself; raises `ConfigurationError` where a value breaks a rule."""
        parse_filter(self.subscription)
        self.configuration.check()
        for name, value, low, high in self._bounded():
            if not low <= value <= high:
                raise ConfigurationError(name, value, f"must lie between {low} and {high}")
        for name, (low, high) in self._ranges():
            if not 0 <= low <= high <= 1_000_000:
                raise ConfigurationError(name, [low, high], "must be a range [low, high] with 0 <= low <= high")
        start_of(self.load.start)
        members = self.members
        for name, times in (
            ("load.rotate_s", self.load.rotate_s),
            ("load.drop_s", self.load.drop_s),
            ("members.join_s", members.join_s),
            ("members.leave_s", members.leave_s),
            ("members.resubscribe_s", members.resubscribe_s),
        ):
            if any(not 0 <= at < self.phases.safety_s for at in times):
                raise ConfigurationError(name, list(times), "must lie in the safety phase")
        if not self.rates or any(not 0 < rate <= 1 for rate in self.rates):
            raise ConfigurationError("rates", list(self.rates), "must be shares above 0 and at most 1")
        self._check_people()
        return self

    def _bounded(self) -> tuple[tuple[str, float, float, float], ...]:
        tail = (0.0, 0.0) if self.swarm is None or self.swarm.tail is None else self.swarm.tail
        return (
            ("load.topics", self.load.topics, 1, 100_000),
            ("load.messages", self.load.messages, 0, 10_000_000),
            ("load.stray", self.load.stray, 0, 10_000_000),
            ("load.batch", self.load.batch, 1, 10_000),
            ("load.take", self.load.take, 1, 10_000),
            ("members.consumers", self.members.consumers, 0, 1_000),
            ("members.leaders", self.members.leaders, 1, 9),
            ("network.tail", self.network.tail, 0, 1),
            ("network.tail_ms", self.network.tail_ms, 1, 3_600_000),
            ("phases.safety_s", self.phases.safety_s, 1, 86_400),
            ("phases.liveness_s", self.phases.liveness_s, 1, 86_400),
            ("swarm.share", 0 if self.swarm is None else self.swarm.share, 0, 1),
            ("swarm.tail", tail[0], 0, tail[1]),
            ("swarm.tail", tail[1], tail[0], 1),
        )

    def _ranges(self) -> Iterator[tuple[str, Range]]:
        yield "load.work_ms", self.load.work_ms
        yield "network.delay_ms", self.network.delay_ms
        for field in self.faults.__struct_fields__:
            yield f"faults.{field}", getattr(self.faults, field)
        for field in ("consumers", "messages", "topics", "batch", "take", "work_ms", "delay_ms"):
            bounds = getattr(self.swarm, field, None)
            if bounds is not None:
                low, high = bounds
                if field in ("topics", "batch", "take") and low < 1:
                    raise ConfigurationError(f"swarm.{field}", [low, high], "must begin at 1 or more")
                yield f"swarm.{field}", bounds

    def _check_people(self) -> None:
        """Faults need somebody to hit, strays somebody who does not want them, and properties a name that is known."""
        fewest = self.members.consumers
        if self.swarm is not None and self.swarm.consumers is not None:
            fewest = self.swarm.consumers[0]
        hitting = [name for name in self.faults.__struct_fields__ if getattr(self.faults, name)[1]]
        if hitting and not fewest:
            raise ConfigurationError("members.consumers", fewest, f"must be at least 1: {hitting[0]} needs one to hit")
        _, topic_filter = parse_filter(self.subscription)
        if self.load.stray and matches(topic_filter, "stray/t000"):
            raise ConfigurationError(
                "subscription", self.subscription, "must not match stray/t000 where load.stray > 0"
            )
        for name in self.out_of_scope:
            if name not in PROPERTIES:
                raise ConfigurationError("out_of_scope", name, f"must be one of {', '.join(PROPERTIES)}")


def read(path: Path) -> Scenario:
    """The scenario in a file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError("scenario", str(path), f"cannot be read: {error.strerror}") from error
    try:
        return msgspec.toml.decode(text, type=Scenario).check()
    except msgspec.MsgspecError as error:
        raise ConfigurationError("scenario", str(path), f"is not a scenario: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}: {error.key}", error.value, error.rule) from error


def shipped() -> dict[str, Path]:
    """Name -> file of the scenarios that come with the package."""
    found: dict[str, Path] = {}
    for folder in reversed(FOLDERS):
        found.update((path.stem, path) for path in sorted(folder.glob("*.toml")))
    return dict(sorted(found.items()))


def named(name: str) -> Scenario:
    """A shipped scenario by its name, or the one in the file of that name."""
    if name.endswith(".toml") or "/" in name:
        return read(Path(name))
    known = shipped()
    if name not in known:
        raise ConfigurationError("scenario", name, f"is unknown; known are {', '.join(known)}, or give a .toml file")
    return read(known[name])

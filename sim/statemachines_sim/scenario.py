"""Scenario: what a simulated run is made of, read from a TOML file.

Times carry their unit in the name (`_ms`, `_s`).  A range `[low, high]` is drawn from the seed.  Everything that is not
said has the default below; an unknown key, a value of another type or out of its bounds is a `ConfigurationError` that
names the file, the key and the rule.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.stream_store import parse_filter

_HERE = Path(__file__).parent
FOLDERS = (_HERE / "scenarios", _HERE.parent / "scenarios")
"""Where the scenarios of the package are: in the wheel, in the repository."""

Range = tuple[int, int]


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


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who takes part: all from the start, `join_s` more consumers later; `leave_s`: one unsubscribes;
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
    """How many faults of each kind a seed draws for the safety phase, `[low, high]`."""

    crash: Range = (0, 0)
    """A consumer dies with all it knows, and comes back under a new incarnation."""
    leader_crash: Range = (0, 0)
    """A leader host dies, and comes back."""
    pause: Range = (0, 0)
    """A process stands still, longer than any timeout or shorter."""
    partition: Range = (0, 0)
    """One direction between two nodes is cut."""
    loss: Range = (0, 0)
    """For a while a share of all messages is lost."""
    duplicate: Range = (0, 0)
    """For a while a share of all messages arrives twice, the copy late."""
    hold_back: Range = (0, 0)
    """For a while a share of all messages is held back for seconds: heavy-tailed delay, and reordering."""
    store: Range = (0, 0)
    """For a while a share of all requests to the stores fails, half of them after they were carried out."""


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
    phases: Phases = Phases()
    configuration: Configuration = Configuration()

    def check(self) -> Scenario:
        """Itself; raises `ConfigurationError` where a value breaks a rule."""
        parse_filter(self.subscription)
        self.configuration.check()
        for name, value, low, high in (
            ("load.topics", self.load.topics, 1, 100_000),
            ("load.messages", self.load.messages, 0, 10_000_000),
            ("load.batch", self.load.batch, 1, 10_000),
            ("load.take", self.load.take, 1, 10_000),
            ("members.consumers", self.members.consumers, 0, 1_000),
            ("members.leaders", self.members.leaders, 1, 1),
            ("network.tail", self.network.tail, 0, 1),
            ("network.tail_ms", self.network.tail_ms, 1, 3_600_000),
            ("phases.safety_s", self.phases.safety_s, 1, 86_400),
            ("phases.liveness_s", self.phases.liveness_s, 1, 86_400),
        ):
            if not low <= value <= high:
                raise ConfigurationError(name, value, f"must lie between {low} and {high}")
        faults = ((f"faults.{field}", getattr(self.faults, field)) for field in self.faults.__struct_fields__)
        ranges = (("load.work_ms", self.load.work_ms), ("network.delay_ms", self.network.delay_ms), *faults)
        for name, (low, high) in ranges:
            if not 0 <= low <= high <= 1_000_000:
                raise ConfigurationError(name, [low, high], "must be a range [low, high] with 0 <= low <= high")
        members = self.members
        for name, times in (
            ("members.join_s", members.join_s),
            ("members.leave_s", members.leave_s),
            ("members.resubscribe_s", members.resubscribe_s),
        ):
            if any(not 0 <= at < self.phases.safety_s for at in times):
                raise ConfigurationError(name, list(times), "must lie in the safety phase")
        return self


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

"""Actor: one component of a closed system, as a pure function.

What an actor does depends on its local state and one event only, never on time: `react` is called once for each
distinct pair, and the result is kept in tables.  A local state is any frozen msgspec Struct; two that encode to equal
bytes are one.  Absolute times do not exist (`now_ns` is always 0, unless the system has a `Clock`): of a timer only
"set" or "not set" is known, or, where it is timed (`timing`), how many ticks remain.

Timing: which timers of a component are timed, and which fields of its record hold a time.

In a system with a tick (`TickClock`) a component steps at one and the same `now_ns` for ever, and when time passes the
times that its record holds move into the past.  So what the shipped `step` reckons are deadlines relative to now.  For
that the explorer must know every field that holds a time: a `Stamp`.  That none is missing, and that the largest
constant is as large as said, is checked for every entry (`shift`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Event, Fsm
from statemachines_spec.explorer.environment import Environment

Move = Callable[[int], int]
"""A time in nanoseconds, and the one to take its place."""


class Stamp(msgspec.Struct, frozen=True):
    """A field that holds a time: its `name`, for people; `largest_ns`: the largest constant that is ever added to it;
    beyond that age it grows no older, since every deadline reckoned from it is over.

    `over(record, live, dead)`: the record with `live(time)` in place of each time that may still be read, and
    `dead(time)` in place of each that is written anew before it is read again.
    """

    name: str
    largest_ns: int
    over: Callable[[Any, Move, Move], Any]


class Timing(msgspec.Struct, frozen=True):
    """`tick_ns`: the length of a tick; `timers`: those that are timed (all others may fire at any moment while they are
    set); `late`: timer -> by how many ticks it may fire late (else: at once); `stamps` of the record; `now_ns`: what
    steps are told; `authority`: the timers that fire before others that are due (from the machine)."""

    tick_ns: int
    timers: tuple[str, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    late: dict[str, int] = {}
    now_ns: int = 0
    authority: frozenset[str] = frozenset()

    def check(self, name: str, fsm: Fsm[Any], silent: frozenset[str]) -> None:
        """Raises `ConfigurationError` for a timer that the machine of component `name` does not have, or that never
        fires; and for a tick or a delay that is none."""
        if self.tick_ns < 1:
            raise ConfigurationError(f"tick of {name}", self.tick_ns, "must be 1 nanosecond at least")
        known = fsm.timer_registry()
        for timer in self.timers:
            if timer not in known:
                raise ConfigurationError(f"timed timers of {name}", timer, f"unknown; there are: {', '.join(known)}")
            if timer in silent:
                rule = "never fires (it is silent), so time would stand still: it is either timed or silent"
                raise ConfigurationError(f"timed timers of {name}", timer, rule)
        for timer, ticks in self.late.items():
            if timer not in self.timers or ticks < 1:
                rule = "must be a timed timer, and late by 1 tick at least"
                raise ConfigurationError(f"late timers of {name}", f"{timer}: {ticks}", rule)

    def ticks_until(self, deadline_ns: int) -> int:
        """How many ticks from now a deadline is reached; 0 and below: it is."""
        return -(-(deadline_ns - self.now_ns) // self.tick_ns)

    def move_stamps(self, record: Any, ticks: int) -> Any:
        """The record, its stamps so many ticks older; those that are dead are all alike."""
        for stamp in self.stamps:
            record = stamp.over(record, self._older(stamp, ticks), _forget_time)
        return record

    def alter_dead_times(self, record: Any) -> Any:
        """The record with other times in place of the dead ones: nothing may come of it."""
        for stamp in self.stamps:
            record = stamp.over(record, _same, lambda time_ns: self.now_ns + 1_000_003 * self.tick_ns)
        return record

    def _older(self, stamp: Stamp, ticks: int) -> Move:
        oldest = self.now_ns - self.oldest(stamp) * self.tick_ns
        return lambda time_ns: max(time_ns - ticks * self.tick_ns, oldest)

    def oldest(self, stamp: Stamp) -> int:
        """The age in ticks beyond which a stamp grows no older."""
        return -(-stamp.largest_ns // self.tick_ns) + max(self.late.values(), default=0)

    def describe_timing(self) -> dict[str, str]:
        """What is printed of it beside every verdict."""
        lines = {"timed": ", ".join(map(self._timer, self.timers))} if self.timers else {}
        if self.stamps:
            stamps = (f"{one.name} (up to {one.largest_ns} ns, {self.oldest(one)} ticks)" for one in self.stamps)
            lines["stamps"] = ", ".join(stamps)
        return lines

    def _timer(self, timer: str) -> str:
        return f"{timer} (late by {self.late[timer]} ticks at most)" if timer in self.late else timer


def complete_timings(
    name: str, given: Mapping[str, Timing], machines: Mapping[str, Fsm[Any]], silent: frozenset[str]
) -> dict[str, Timing]:
    """A timing for each kind of party of component `name`: those without one have no timed timers.  Raises
    `ConfigurationError` for unknown kinds and timers, and for two ticks."""
    for kind, timing in given.items():
        if kind not in machines:
            raise ConfigurationError(f"timing of {name}", kind, f"no kind of party; there are: {', '.join(machines)}")
        timing.check(f"{name} ({kind})", machines[kind], silent)
    ticks = {(timing.tick_ns, timing.now_ns) for timing in given.values()}
    if len(ticks) > 1:
        raise ConfigurationError(f"tick of {name}", sorted(ticks), "the parties of a process have one tick")
    every = {kind: given.get(kind, Timing(tick, now_ns=now_ns)) for tick, now_ns in ticks for kind in machines}
    return {kind: replace(timing, authority=machines[kind].authority) for kind, timing in every.items()}


def merge_timings(timings: Mapping[str, Timing]) -> Timing | None:
    """What is printed of them, and the tick that they share (None: there are none)."""
    if not timings:
        return None
    some = [one for one in timings.values() if one.timers or one.stamps]
    if len(some) == 1:
        return some[0]
    names = {kind: tuple(f"{timer} of {kind}" for timer in one.timers) for kind, one in timings.items()}
    late = {f"{timer} of {kind}": ticks for kind, one in timings.items() for timer, ticks in one.late.items()}
    timers = tuple(name for some in names.values() for name in some)
    stamps = tuple(stamp for one in timings.values() for stamp in one.stamps)
    first = next(iter(timings.values()))
    return Timing(first.tick_ns, timers, stamps, late, first.now_ns)


def _forget_time(time_ns: int) -> int:
    return 0


def _same(time_ns: int) -> int:
    return time_ns


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """`event` for the party with the id `to`; `sender` is the party it comes from ("" = the environment)."""

    sender: str
    to: str
    event: Any


class SeenStep(msgspec.Struct, frozen=True, gc=False):
    """One step of a machine inside a reaction: the row it took (-1: none), and its clause.

    `fsm`, `fed`, `before`, `after` are the machine, the event, and its record around the step (None for a child);
    `full_machine`: its name as traces have it; `now_ns`: the time that it was told.
    """

    party: str
    machine: str
    instance: str
    event: str
    source: str
    dest: str
    row: int
    clause: str
    fsm: Any = None
    fed: Any = None
    before: Any = None
    after: Any = None
    full_machine: str = ""
    now_ns: int = 0


Watch = list[SeenStep]
"""Where a reaction writes down the steps it is made of, when somebody wants to read them."""


EVERYBODY = "*"
"""As the receiver of a call: every component that keeps time and is not called by its name in the same reaction."""


class Reaction(msgspec.Struct, frozen=True, gc=False):
    """What comes of one event: the next local state, what goes into the network, and what happens to other components
    within the same transition (`calls`, in order; their own calls follow)."""

    local: Any
    sends: tuple[Envelope, ...] = ()
    calls: tuple[Envelope, ...] = ()


class Crash(Event, frozen=True, gc=False):
    """The process is gone, and all that it kept in memory."""


class Restart(Event, frozen=True, gc=False):
    """The process comes back under the next incarnation."""


class Pause(Event, frozen=True, gc=False):
    """The process stands still; what was sent to it waits."""


class LoseDisk(Event, frozen=True, gc=False):
    """The process is gone, and its disk as well."""


class At(Event, frozen=True, gc=False):
    """It is so late now: one of the instants of a `Clock`."""

    now_ns: int


class Passed(Event, frozen=True, gc=False):
    """So many ticks of the component's own clock have passed (`TickClock`)."""

    ticks: int


class PassLease(Event, frozen=True, gc=False):
    """Time passes, beyond the deadline of the paused process that others count on."""


class PassAll(Event, frozen=True, gc=False):
    """Time passes, beyond every deadline of the paused process."""


class Wake(Event, frozen=True, gc=False):
    """The process goes on, and has heard what there was to hear: all timers that are due fire."""


class Hear(Event, frozen=True, gc=False):
    """The process goes on; of the timers that are due those of authority fire, the others (`Wake`) after it has heard
    what waited, as much of that as its loop brings in one turn."""


class Actor(ABC):
    """Base of every component.  `name` is its node: a message to `name` or to `name~1/2` is for it.

    `silent` timers never fire in this system (a bound, and printed as one).
    """

    keeps_time = False
    """It is told what time it is, as an event `At`, or that time has passed, as an event `Passed`."""

    timing: Timing | None = None
    """Of a system with a tick: its timed timers and its stamps."""

    environments: tuple[Environment, ...] = ()
    """What it does in place of parties that are left out (a bound, and printed as one)."""

    def __init__(
        self,
        name: str,
        *,
        silent: tuple[str, ...] = (),
        timing: Timing | None = None,
        fsm: Fsm[Any] | None = None,
        late: bool = False,
    ) -> None:
        self.name = name
        self.silent = frozenset(silent)
        if timing is not None:
            self.set_timing(timing, fsm)
            if late:
                rule = "a timed timer that was taken back never fires: either late or timed"
                raise ConfigurationError(f"late timers of {name}", ", ".join(timing.timers), rule)

    def set_timing(self, timing: Timing, fsm: Fsm[Any] | None = None) -> None:
        """It is timed from now on; raises `ConfigurationError` for timers that the machine does not have."""
        if fsm is not None:
            timing.check(self.name, fsm, self.silent)
            timing = replace(timing, authority=fsm.authority)
        self.timing = timing
        self.keeps_time = True

    def map_parties(self, local: Any, change: Callable[[Timing, Any], Any]) -> Any:
        """`local` with `change(timing, party)` in place of every node in it; unless overridden: of its `party`."""
        party = getattr(local, "party", None)
        return local if self.timing is None or party is None else replace(local, party=change(self.timing, party))

    def at_time(self, now_ns: int) -> Actor:
        """The same component of a timed system, with another time on its clock."""
        assert self.timing is not None
        other = copy.copy(self)
        other.timing = replace(self.timing, now_ns=now_ns)
        return other

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        """The machines whose records its local states hold, without their child machines: unless overridden, its
        `fsm`.  Their invariants are properties of the system; a step of a machine that is not named is an error."""
        fsm = getattr(self, "fsm", None)
        return (fsm,) if isinstance(fsm, Fsm) else ()

    @abstractmethod
    def initial(self) -> Any:
        """The local state at the beginning."""

    @abstractmethod
    def inputs(self, local: Any) -> tuple[Any, ...]:
        """What may happen by itself in `local`: timers that are set, calls of the environment, faults."""

    @abstractmethod
    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        """What comes of the event; None: it cannot happen now (a message waits)."""

    def within(self, local: Any) -> bool:
        """Whether `local` lies within the bounds; a transition beyond them is not taken, and counted."""
        return True

    def canonical(self, local: Any) -> Any:
        """`local` under canonical names: states that differ only in names become one, which is explored.

        For what this component alone knows, and only counts on: numbers of requests while no answer is outstanding,
        places in a queue, ids of what is gone.  Name it anew by first use or age (`naming`), so that nothing that the
        component does later can tell, and no other component, message or property knows the old name.  What others know
        must stay; of components that may change places `symmetry` takes care.  Called on every local state before it
        gets its number; naming twice must change nothing more.  Unless overridden: as it is.
        """
        return local

    def describe(self, local: Any) -> str:
        """`local` in a few words, for people."""
        return str(local)

    def bounds(self) -> dict[str, str]:
        """What bounds it besides, as it is printed beside every verdict."""
        return {}


class Observer(Actor):
    """A property with memory: a component that is called within the transitions it is interested in."""

    @abstractmethod
    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        """What to call it with when `actor` went from `before` to `after` by `event`; None: nothing."""

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return ()


def words_of(bound: Callable[[Any], bool]) -> str:
    """What is printed of the function that bounds a component: the first line of its docstring, or its name."""
    said = (bound.__doc__ or "").strip().partition("\n")[0] or getattr(bound, "__name__", "")
    return said if said not in ("", "<lambda>") else "a function without a name or docstring"

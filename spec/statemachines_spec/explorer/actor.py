"""Actor: one component of a closed system, as a pure function.

What an actor does depends on its local state and one event only, never on time: `react` is called once for each
distinct pair, and the result is kept in tables.  A local state is any frozen msgspec Struct; two that encode to equal
bytes are one.  Absolute times do not exist (`now_ns` is always 0, unless the system has a `Clock`): of a timer only
"set" or "not set" is known, or, where it is timed (`timing`), how many ticks remain.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Event, Fsm
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.timing import Timing


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

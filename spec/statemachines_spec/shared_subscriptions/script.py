"""Scripts of shared subscriptions: who takes part, what applications do, which times may be longer.

Unhurried: the same system with other times, so long that timers which it leaves out are never due.

The explorer knows no durations, so any configuration that keeps its relations has the same runs.  One in which a timer
that "never fires" is due after hours has those runs with real timers, too.

Group setting: how many of what a system of shared subscriptions has, and which faults how often.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import ceil
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Event, node_of
from statemachines.shared_subscriptions.borrower import OnUnsubscribe
from statemachines.shared_subscriptions.claim import RetryTimer
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import ReadDone
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.shared_subscriptions.stream import StreamProgress
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.actor import Actor, Envelope
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.system import System
from statemachines_spec.script.path_to_script import PathToScript, TimerMoment, ToldEvent
from statemachines_spec.script.protocol import ScriptProtocol
from statemachines_spec.script.script import Script, SentMessage
from statemachines_spec.script.symbolic_clock import SetTimerMoment, Slot
from statemachines_spec.script.words import Node
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP, Consumer
from statemachines_spec.shared_subscriptions.leader_host import Age, LeaderHost, LeaderHostLocal, read_watched
from statemachines_spec.shared_subscriptions.session_consumer import SessionConsumer
from statemachines_spec.shared_subscriptions.stores import Store, make_declared_store
from statemachines_spec.shared_subscriptions.variants import configuration, in_place

HOUR_MS: Final = 3_600_000
PING_MS: Final = 60_000
"""Instead of the ping interval: leases last as long, and some of them end within a run."""


def slow_down(system: System, *, pings: bool) -> System:
    """The system with longer times for the timers that it leaves out; those of `pings` last, since leases and expiry
    grow with them."""
    silent = frozenset[str]().union(*(actor.silent for actor in system.actors))
    if not pings:
        silent -= {"ping"}
    host = next(actor for actor in system.actors if isinstance(actor, LeaderHost))
    return _in_time(system, longer(host.configuration, silent))


def patient(system: System) -> System:
    """The same system, where a leader that never gives a grant up waits for hours; no other time depends on that."""
    host = next((actor for actor in system.actors if isinstance(actor, LeaderHost)), None)
    if host is None or "grant_timeout" not in host.silent:
        return system
    return _in_time(system, replace(host.configuration, grant_timeout_ms=HOUR_MS))


def _in_time(system: System, configuration: Configuration) -> System:
    return replace(system, actors=tuple(_with(actor, configuration) for actor in system.actors))


def longer(ours: Configuration, silent: frozenset[str]) -> Configuration:
    """With every relation kept."""
    if "claim_end" in silent:
        ours = replace(ours, claim_ttl_ms=9 * HOUR_MS, claim_heartbeat_ms=4 * HOUR_MS)
        if "commit" in silent:
            ours = replace(ours, commit_interval_ms=HOUR_MS)
    if "renew" in silent:
        ours = replace(ours, renew_streams_ms=HOUR_MS)
    if "idle" in silent:
        ours = replace(ours, idle_stop_ms=HOUR_MS)
    if "ping" in silent:
        lease_ms, d = PING_MS + ours.ping_timeout_ms, ours.clock_drift
        validity_ms = ceil((lease_ms * (1 + d) + 2 * ours.max_delay_ms) / (1 - d)) + 1
        ours = replace(ours, ping_interval_ms=PING_MS, validity_ms=max(ours.validity_ms, validity_ms))
    return ours.check()


def _with(actor: Actor, configuration: Configuration) -> Actor:
    other = copy.copy(actor)
    if isinstance(other, Consumer | LeaderHost):
        other.configuration = configuration
    elif isinstance(other, Store) and other.name == GROUP_STORE and other.state:
        other.state = make_declared_store(configuration)
    return other


NodeNumber = r"[1-9][0-9]{0,3}$"
ConsumerNode = Annotated[str, msgspec.Meta(pattern=rf"^consumer-{NodeNumber}")]
HostNode = Annotated[str, msgspec.Meta(pattern=rf"^leader-{NodeNumber}")]
Topic = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]
OwnTime = Literal["find_leader_ms", "resend_interval_ms"]
Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=2**40)]

CONSUMER, LEADER_HOST, STORE = "consumer", "leader host", "store"

FREE_TIMES: Final = {"find_leader": "find_leader_ms", "resend": "resend_interval_ms"}
"""Timer -> its time in the configuration: each node may have its own, since no other relies on it."""

MESSAGES: Final = 8
"""Messages in each stream, if the system does not need more: applications take some at the end."""

SETTLED: Final = "settled"
AGE: Final = "age of the claim"
IDLE: Final = "idle"
"""The timer of a leader without members, or with members that it has not heard."""


class GroupOrigin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`consumers`: node -> the leader host it asks; `messages` are in the stream of each of `topics` from the start,
    the group is read from the beginning.  `times`: node -> times of its own, where it has others than `configuration`,
    so that no timer is due where the run has it open."""

    group: Topic
    configuration: Configuration
    times: Annotated[dict[Node, dict[OwnTime, Milliseconds]], msgspec.Meta(max_length=100)]
    consumers: Annotated[dict[ConsumerNode, HostNode], msgspec.Meta(max_length=100)]
    hosts: Annotated[tuple[HostNode, ...], msgspec.Meta(min_length=1, max_length=9)]
    topics: Annotated[tuple[Topic, ...], msgspec.Meta(min_length=1, max_length=100)]
    messages: Annotated[int, msgspec.Meta(ge=1, le=10_000)]

    def nodes(self) -> Mapping[str, str]:
        """Consumers, leader hosts, and the two stores."""
        stores = {"group_store": STORE, "stream_store": STORE}
        return {**dict.fromkeys(self.consumers, CONSUMER), **dict.fromkeys(self.hosts, LEADER_HOST), **stores}

    def check(self) -> GroupOrigin:
        """Itself; raises `ConfigurationError`."""
        self.configuration.check()
        for consumer, host in self.consumers.items():
            if host not in self.hosts:
                raise ConfigurationError(f"consumers.{consumer}", host, f"must be one of {', '.join(self.hosts)}")
        for node in self.times:
            if node not in self.consumers and node not in self.hosts:
                raise ConfigurationError("times", node, "is neither a consumer nor a leader host of this script")
        return self

    def configuration_of(self, node: str) -> Configuration:
        """With the node's own times."""
        return replace(self.configuration, **self.times.get(node, {})).check()


class GroupPath(PathToScript):
    """Consumers begin when they are needed; claims grow old by the clock of who watches them."""

    free_timers = tuple(FREE_TIMES)

    @classmethod
    def slower(cls, system: System) -> Iterator[System]:
        yield (one := patient(system))
        yield slow_down(one, pings=False)
        yield slow_down(one, pings=True)

    def __init__(self, *given: Any) -> None:
        self._found: dict[str, Any] = {}
        self._looked_at: dict[str, int] = {}
        super().__init__(*given)

    def refusal(self) -> str:
        sessions = any(isinstance(one, SessionConsumer) for one in self.actors.values())
        return "what whole sessions do has no steps that a runtime can be told" if sessions else ""

    def find_start(self, actor: Actor) -> tuple[SentMessage, ...] | None:
        """The first leader_wanted of a consumer is lost, as in the explorer."""
        if not isinstance(actor, Consumer):
            return None
        return (SentMessage("leader_wanted", actor.name, actor.registry, lost=True),)

    def own(self) -> GroupOrigin:
        hosts = tuple(one.name for one in self.actors.values() if isinstance(one, LeaderHost))
        consumers = {name: one for name, one in self.actors.items() if isinstance(one, Consumer)}
        streams = next(one for one in self.actors.values() if isinstance(one, Store) and one.name == "stream_store")
        return GroupOrigin(
            GROUP,
            self._configuration,
            self._own_times(),
            {name: one.registry for name, one in consumers.items() if name in self.locals},
            hosts,
            tuple(sorted(stored.topic for stored in streams.state.by_id.values())),
            MESSAGES + max((one.offsets for one in consumers.values()), default=0),
        )

    def may_last(self, timer: str, times: int) -> bool:
        """Whether the configuration keeps every relation."""
        ours, field = self._configuration, FREE_TIMES[timer]
        try:
            replace(ours, **{field: times * getattr(ours, field)}).check()
        except ConfigurationError:
            return False
        return True

    def describe_event(self, event: Any) -> ToldEvent | None:
        if isinstance(event, StreamProgress):
            return ToldEvent("finish" if event.finished else "acknowledge", about=event.stream)
        if isinstance(event, OnUnsubscribe):
            return ToldEvent("unsubscribe")
        return ToldEvent("pass") if isinstance(event, Age) else None

    def stand(self, node: str, event: Any) -> None:
        """The claim that this host watches is old."""
        if isinstance(event, Age):
            slot = Slot(GROUP_STORE, AGE, node)
            age = self.clock.armed.pop(slot)
            self.bind(TimerMoment(slot, age, self.clock.moment, True, False))

    def bind(self, wait: TimerMoment) -> None:
        """The idle timer is no small matter: a leader for which it is due lets its claim go."""
        firm = wait.armed._replace(soft=wait.armed.soft and wait.slot.timer != IDLE)
        super().bind(wait._replace(armed=firm))

    def note_taken(self, envelope: Envelope) -> None:
        """A host that looked at the claim watches it from the answer on; who looks before it is old finds it young."""
        node, event = node_of(envelope.to), envelope.event
        host = self.actors.get(node)
        if not isinstance(host, LeaderHost):
            return
        slot, found = Slot(GROUP_STORE, AGE, node), read_watched(self.locals[node])
        if found is None or found != self._found.get(node):
            self.clock.armed.pop(slot, None)
            if found is not None:
                ttl_ns = host.configuration.claim_ttl_ms * MS
                self.clock.armed[slot] = SetTimerMoment(self.clock.moment, ttl_ns, not host.ages)
        elif isinstance(event, ReadDone) and slot in self.clock.armed:
            self.bind_open(slot, self.clock.armed[slot], self._looked_at[node])
        if isinstance(event, LeaderWanted | RetryTimer):
            self._looked_at[node] = self.clock.moment
        self._found[node] = found
        self._free_idle(self.locals[node])

    def _free_idle(self, local: LeaderHostLocal) -> None:
        """A leader that hears a member takes its idle timer for nothing from then on."""
        if local.party is None or not local.party.record.heard:
            return
        slot = Slot(local.party.record.id, IDLE, "")
        armed = self.clock.armed.get(slot)
        if armed is not None and armed.soft:
            del self.clock.armed[slot]
            self.bind_open(slot, armed, self.clock.moment)

    def keeps(self, slot: Slot) -> bool:
        return slot.timer == AGE

    @property
    def _configuration(self) -> Configuration:
        return next(one.configuration for one in self.actors.values() if isinstance(one, LeaderHost))

    def _own_times(self) -> dict[str, dict[Any, int]]:
        times: dict[str, dict[Any, int]] = {}
        for (node, timer), longer in sorted(self.longer.items()):
            field = FREE_TIMES[timer]
            times.setdefault(node, {})[field] = longer * getattr(self._configuration, field)
        return times


# -- the words ------------------------------------------------------------------------------------------------------


def about(event: Any) -> str:
    """The stream that a message is about."""
    return getattr(event, "stream", "")


def is_final(event: Any) -> bool:
    """It is the last word on the stream."""
    return bool(getattr(event, "finished", False))


def describe_finish(event: Event) -> str | None:
    """A session has finished a stream."""
    return event.stream if isinstance(event, StreamProgress) and event.finished else None


@contextmanager
def rules(script: Script, variant: str) -> Iterator[None]:
    """The shipped machines have the rules of `variant`, or of the script (and its bug), until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(in_place(variant or script.variant or SETTLED))
        if script.bug and not variant:
            stack.enter_context(plant_bug(script.bug))
        yield


def set_variant(script: Script, variant: str) -> Script:
    """The script with the configuration of `variant` ("" = its own)."""
    if not variant:
        return script
    own: GroupOrigin = script.own
    ours = replace(own.configuration, exclusive=configuration(variant).exclusive)
    return replace(script, own=replace(own, configuration=ours))


SCRIPT = ScriptProtocol(
    own=GroupOrigin,
    words={
        "acknowledge": "the application takes one message of the stream `about` and acknowledges it",
        "finish": "the session has finished the stream",
        "unsubscribe": "the application unsubscribes",
    },
    who={
        "start": (CONSUMER,),
        "acknowledge": (CONSUMER,),
        "finish": (CONSUMER,),
        "unsubscribe": (CONSUMER,),
    },
    services=(STORE,),
    started=(CONSUMER,),
    about=about,
    is_final=is_final,
    by_itself=("finish",),
    said=describe_finish,
    players=("borrower", "leader"),
    path="statemachines_spec.shared_subscriptions.script:GroupPath",
    simulator="statemachines_sim.shared_subscriptions.asyncio_stage:simulate",
    asyncio="statemachines_sim.shared_subscriptions.asyncio_stage:run_live",
    rules=rules,
)


WINDOW = Configuration().grant_window
"""No system has so many streams that it would ever be full."""


class GroupSetting(msgspec.Struct, frozen=True):
    """How many of what.

    `consumers` and `hosts` (leader hosts) take part, over `topics` streams of `offsets` messages; `network`;
    `sessions`: consumers are whole, and what follows up to `disconnects` is theirs, as `delivering` says;
    `roots` batches are committed after a claim was taken (0: none is, and no progress becomes durable);
    `script`: what the environment does with the stream store (`stores.script`), which lists `page` streams at a time;
    `lies`: consumers report what was never stored; so many `mutes` among them answer no grant;
    `grant_window`: so many grants of a member may be unanswered;
    `pretends`: so many lies are told to consumer-1, which hears by its witness, by somebody who says it leads;
    `read_failures`: so many reads of the witness fail; `restores`: so often the group store is put back;
    `lost`: so many messages to or from a leader host are lost, in a network that loses none;
    `look_failures`: so many requests that the stream store alone fails;
    `silences`: a store that fails may not even answer; `renews`: a leader renews its claim in time while it lives;
    `idles`: a leader without members gives its claim up;
    `lives` borrowers each consumer makes, `pings` each of them sends; `registrations`, `grants`, `epochs` of leaders;
    `host_lives` of a leader host and `leaders` it starts in each; faults: how often all together.
    """

    consumers: int = 2
    hosts: int = 1
    topics: int = 1
    offsets: int = 0
    sessions: bool = False
    buffer: int = 256
    ended: bool = False
    at_delivery: bool = False
    fetches_wait: bool = False
    losses: int = 0
    leases_hold: bool = False
    filter: str = FILTER
    disconnects: int = 0
    network: Network = Network(1)
    lives: int = 1
    pings: int = 1
    registrations: int = 2
    grants: int = 3
    grant_window: int = WINDOW
    epochs: int = 1
    host_lives: int = 1
    leaders: int = 1
    asks_travel: bool = False
    claims_age: bool = False
    roots: int = 0
    crashes: int = 0
    leader_crashes: int = 0
    timeouts: int = 0
    revoke_timeouts: int = 0
    grant_timeouts: int = 0
    pauses: int = 0
    leader_pauses: int = 0
    unsubscribes: int = 0
    script: tuple[str, ...] = ()
    page: int = 0
    lies: bool = False
    mutes: int = 0
    pretends: int = 0
    read_failures: int = 0
    restores: int = 0
    lost: int = 0
    store_failures: int = 0
    look_failures: int = 0
    silences: bool = False
    renews: bool = False
    idles: bool = False
    halts: int = 0
    late_timers: int = 0

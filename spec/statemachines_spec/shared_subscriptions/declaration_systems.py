"""Declaration systems: closed systems in which nodes declare a group, and destroy it, over one store that may fail.

Their hosts remember what they are told, and that is what the properties speak of.  Requests are carried out at once,
and answers travel: what a node has read may be out of date when it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Event, Map
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group import (
    GROUP,
    IDLE,
    DeclarationRefused,
    Declare,
    Destroy,
    GroupDeclared,
    GroupDestroyed,
    GroupRecord,
)
from statemachines.shared_subscriptions.group_store import (
    Claim,
    GroupStore,
    Properties,
    StoredRecord,
    Value,
    record_key,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.shared_subscriptions.consumer import FILTER
from statemachines_spec.shared_subscriptions.consumer import GROUP as NAME
from statemachines_spec.shared_subscriptions.stores import OPEN, REFUSED, Fail, FailingStore, StoreLocal
from statemachines_spec.shared_subscriptions.variants import configuration

TOLD: Final = (GroupDeclared, GroupDestroyed, DeclarationRefused)
START, ANEW = 5, 1
"""Of the group: as one node asks for, or as it was declared first; as it is declared once more."""
STARTS_MAX = 8
EPOCH = 3


class Twice(Event, frozen=True, gc=False):
    """It was told more than once."""


class Hears(Actor):
    """The host of a node: what it was told of the group (None: nothing yet).  What is of another is not for it."""

    def initial(self) -> Event | None:
        return None

    def inputs(self, local: Event | None) -> tuple[Any, ...]:
        return ()

    def react(self, local: Event | None, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        told = envelope.event
        if (told.group, told.filter) != (NAME, FILTER):
            return Reaction(local)
        return Reaction(told if local is None else Twice())


def _node(
    number: int, ours: Configuration, calls: tuple[Event, ...], requests: int, kind: type[FsmActor] = FsmActor
) -> tuple[FsmActor, Hears]:
    name, host = f"node-{number}", f"host-{number}"

    def few_requests(record: GroupRecord) -> bool:
        return record.n <= requests

    few_requests.__doc__ = f"{requests} requests of each node"
    node = kind(
        name,
        GROUP,
        GroupRecord(name, NAME, FILTER, ours),
        calls=lambda record: calls if record.status is IDLE else (),
        tells=dict.fromkeys(TOLD, host),
        bound=few_requests,
    )
    return node, Hears(host)


def _key(name: str) -> str:
    return record_key(NAME, FILTER, name)


def _times(one: Configuration, start_ns: int) -> Properties:
    return Properties(start_ns, one.ping_interval_ms, one.ping_timeout_ms, one.claim_ttl_ms)


def _stored(local: StoreLocal) -> Properties | None:
    found = local.state.get(_key("properties"))
    return None if found is None else found.value


# -- a group that is declared by two --------------------------------------------------------------------------------


def build_declared(size: str) -> System:
    """Two nodes with other times declare one group; each is told what is so."""
    ours = configuration("settled")
    theirs = replace(ours, claim_ttl_ms=ours.claim_ttl_ms + 1).check()
    requests = 8 if size == "small" else 12
    first, one = _node(1, ours, (Declare(START),), requests)
    second, other = _node(2, theirs, (Declare(START), Declare(-1)), requests)
    store = FailingStore(GroupStore(), hows=(REFUSED, OPEN), at_once=False)
    return System(
        "declared",
        ABOUT["declared"],
        (first, second, one, other, store),
        Network(2),
        (
            _as_told(one.name, store.name, ours),
            _as_told(other.name, store.name, theirs),
            Always("S18 first", "not both declared it", (_first(one), _first(other)), lambda a, b: a + b < 2),
            *(_once(host) for host in (one, other)),
            *(_sometimes(f"told {what}", host, of) for host in (one, other) for what, of in HEARD.items()),
        ),
        (at_most("request that the store fails", 1 if size == "small" else 2, Fail),),
        bounds={"stores": "requests are carried out at once, answers travel"},
        obligations=_told_at_last((first, one), (second, other)),
    )  # fmt: skip


HEARD: dict[str, Callable[[Event | None], bool]] = {
    "declared": lambda told: isinstance(told, GroupDeclared) and not told.found,
    "found": lambda told: isinstance(told, GroupDeclared) and told.found,
    "refused": lambda told: isinstance(told, DeclarationRefused),
}


def _as_told(host: str, store: str, ours: Configuration) -> Always:
    """Nobody destroys the group: so what was told stays so."""

    def view_answer(local: Event | None) -> int:
        if isinstance(local, GroupDeclared):
            return min(local.start_ns, STARTS_MAX) + 1
        if isinstance(local, DeclarationRefused):
            return STARTS_MAX + 2 + (local.properties == _times(ours, local.properties.start_ns))
        return 0

    def stored(local: StoreLocal) -> int:
        """0: not declared; 1: by other times; else by ours."""
        found = _stored(local)
        if found is None:
            return 0
        return 2 + min(found.start_ns, STARTS_MAX) if found == _times(ours, found.start_ns) else 1

    def holds(told: int, stored: int) -> bool:
        if told == 0:
            return True
        return stored == 1 if told == STARTS_MAX + 2 else stored == told + 1

    text = "the group is stored with the start and times that were told"
    return Always(
        f"S18 {host}", text, (View(host, STARTS_MAX + 4, view_answer), View(store, STARTS_MAX + 3, stored)), holds
    )


def _once(host: Hears) -> Always:
    views = (View(host.name, 2, lambda told: int(not isinstance(told, Twice))),)
    return Always(f"S18 once {host.name}", "who asks is told once", views, bool)


def _first(host: Hears) -> View:
    return View(host.name, 2, lambda told: int(isinstance(told, GroupDeclared) and not told.found))


def _sometimes(text: str, host: Hears, of: Callable[[Event | None], bool]) -> Sometimes:
    return Sometimes(
        f"{host.name} {text}", "its node is told so", (View(host.name, 2, lambda told: int(of(told))),), bool
    )


def _told_at_last(*pairs: tuple[FsmActor, Hears]) -> tuple[Eventually, ...]:
    """Who has asked the store for anything was asked itself."""
    text = "who declares a group, or destroys it, is told what became of it"
    return tuple(
        Eventually(
            f"L12 {node.name}",
            text,
            (node.view(lambda record: int(record.n > 0)), View(host.name, 2, lambda told: int(told is None))),
            lambda asked, waits: bool(asked and waits),
        )
        for node, host in pairs
    )


# -- a group that is destroyed --------------------------------------------------------------------------------------


def build_destroyed(size: str, name: str = "destroyed", failures: int = 0) -> System:
    """A group whose leader is gone is destroyed by a node of other times, and declared again by another, which may
    complete what the first has begun, or destroyed by both; or by the one alone, over a store that fails."""
    ours = configuration("settled")
    shorter = replace(ours, claim_ttl_ms=ours.claim_ttl_ms - 1).check()
    requests = 8 if size == "small" else 10
    first, one = _node(1, shorter, (Destroy(),), requests)
    second, other = _node(2, ours, () if failures else (Declare(ANEW), Destroy()), requests)
    state: dict[str, Value] = {
        "properties": _times(ours, START),
        "claim": Claim("leader-1~1/1", EPOCH),
        "progress:0.0/a": 2,
        "progress:0.0/b": 1,
    }
    held = Map({_key(name): StoredRecord(value, 0) for name, value in state.items()})
    store = FailingStore(GroupStore(), hows=(REFUSED, OPEN), at_once=False, state=held)
    lasts_ns = ours.claim_ttl_ms * MS + ours.lease_by_other_clock_ns()
    clock = Clock(0, lasts_ns - 1, lasts_ns)
    return System(
        name,
        ABOUT[name],
        (first, second, one, other, store, clock),
        Network(2),
        (
            Always("S18 in order", "progress goes while the mark is there, the mark last; the claim stays",
                   (View(store.name, 2, _in_order),), bool),
            *(_make_watched(host, store, clock) for host in (one, other)),
            _anew(other, clock),
            *(_once(host) for host in (one, other)),
            _sometimes("told destroyed", one, _is_destroyed),
            *(_sometimes(f"told {what}", other, HEARD[what]) for what in ("declared", "found") if not failures),
            *(_sometimes("told destroyed", other, _is_destroyed) for _ in range(not failures)),
        ),
        (at_most("request that the store fails", failures if size == "small" else failures + 1, Fail),),
        bounds={"stores": "requests are carried out at once, answers travel", "leaders": "none: the last one is gone"},
        obligations=_told_at_last((first, one), (second, other)),
    )  # fmt: skip


def _in_order(local: StoreLocal) -> int:
    found, claim = _stored(local), local.state.get(_key("claim"))
    left = sum(_key(f"progress:0.0/{topic}") in local.state for topic in "ab")
    whole = found is None or found.destroyed or left == (2 if found.start_ns == START else 0)
    return int(whole and (found is not None or not left) and claim is not None and claim.value.epoch == EPOCH)


def _make_watched(host: Hears, store: Actor, clock: Clock) -> Always:
    """The claim was held when the clock began, so from then on it is watched at the earliest."""

    def old(local: StoreLocal) -> int:
        found = _stored(local)
        return int(found is not None and (found.start_ns == START or bool(found.destroyed)))

    text = "of a group that is destroyed nothing is stored, and nobody delivers under its claim any more"
    views = (
        View(host.name, 2, lambda told: int(isinstance(told, GroupDestroyed))),
        View(store.name, 2, old),
        View(clock.name, len(clock.instants), lambda hand: hand.place),
    )
    last = len(clock.instants) - 1
    return Always(f"S18 {host.name}", text, views, lambda told, left, at: not told or (not left and at == last))


def _anew(host: Hears, clock: Clock) -> Always:
    text = (
        "a group is declared anew only when nobody can deliver under the claim of before, whatever the times of either"
    )
    views = (_first(host), View(clock.name, len(clock.instants), lambda hand: hand.place))
    last = len(clock.instants) - 1
    return Always(f"S18 anew {host.name}", text, views, lambda told, at: not told or at == last)


def _is_destroyed(told: Event | None) -> bool:
    return isinstance(told, GroupDestroyed)


ABOUT: Final = {
    "declared": "two nodes with other times declare a group, over a store that fails",
    "destroyed": "a node destroys a group whose leader is gone, and another declares it again, or destroys it too",
    "destroyed-failing": "a node destroys a group whose leader is gone, over a store that fails",
}
BUILDS: Final[dict[str, Callable[[str], System]]] = {
    "declared": build_declared,
    "destroyed": build_destroyed,
    "destroyed-failing": partial(build_destroyed, name="destroyed-failing", failures=1),
}


def system(name: str, size: str, variant: str, without: tuple[str, ...]) -> System:
    """The system of that name; variants and deadline orders are about others."""
    arguments: dict[str, Any] = {"name": name, "size": size, "variant": variant, "without": without}
    return replace(BUILDS[name](size), origin=(f"{__name__}:system", arguments))

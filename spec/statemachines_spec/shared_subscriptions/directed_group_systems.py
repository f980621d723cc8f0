"""Directed group systems: small closed systems in which nodes declare and destroy a group: as asked, whoever else
does, whatever its last leader left, and whatever answer comes once more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Map
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group import (
    CLEARING,
    DONE,
    GROUP,
    IDLE,
    READING,
    SETTLING,
    Declare,
    Destroy,
    GroupDeclared,
    GroupDestroyed,
    GroupRecord,
)
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import (
    Claim,
    GroupStore,
    Read,
    ReadDone,
    StoredRecord,
    StoreFailed,
    Value,
)
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.actor import Move, Stamp, Timing
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.fsm_actor import ENDED, FsmActor, FsmLocal
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.post import Post
from statemachines_spec.explorer.property import Always, Property, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import Budget, System, at_most
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.shared_subscriptions import declaration_systems, stray_messages
from statemachines_spec.shared_subscriptions.declaration_systems import EPOCH, START, Hears
from statemachines_spec.shared_subscriptions.leader_steps import (
    ECHO,
    Again,
    ConcurrentlyModifiedStore,
    Echo,
    HauntedNode,
    Meddle,
    ReplayingStore,
)
from statemachines_spec.shared_subscriptions.pace_systems import (
    BEGIN,
    COMMIT,
    END,
    HIT,
    NOTHING,
    TIMES_PACED,
    Pace,
    PaceBeat,
)
from statemachines_spec.shared_subscriptions.stores import OPEN, REFUSED, Fail, FailingStore, StoreLocal
from statemachines_spec.shared_subscriptions.succession import TICK_NS
from statemachines_spec.shared_subscriptions.variants import configuration

NOW: Final = 7
"""The time of the store, where that is asked for."""


def ends_once(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S1: who has begun is never as before that, nor waits anew for what it has waited for; it stops where it is done
    and nowhere else."""
    if not isinstance(before, FsmLocal) or not isinstance(after, FsmLocal) or after.party is None:
        return True
    record = after.party.record
    if not isinstance(record, GroupRecord):
        return True
    was = IDLE if before.party is None else before.party.record.status
    in_order = not (was is not IDLE and record.status is IDLE) and not (was is CLEARING and record.status is SETTLING)
    return in_order and (after.mode is ENDED) == (record.status is DONE)


S1: Final = Stepwise("S1 group", "who has begun is never as before, and stops where it is done", ends_once)


def _begins_nothing_anew(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S18: who has destroyed a group but for the wait destroys none that is declared after that."""
    record = _record(before)
    if record is None or record.status not in (SETTLING, CLEARING) or not record.destroy:
        return True
    failed = isinstance(event.answer if isinstance(event, Echo) else event, StoreFailed)
    return failed or after.party.record.status in (SETTLING, CLEARING, DONE)


def _waits_for_nothing(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S18: who reads that the mark which it waits with is gone waits no longer, and removes nothing."""
    record = _record(before)
    if record is None or record.status is not SETTLING or not isinstance(event, ReadDone) or event.n != record.n:
        return True
    return event.records[0] == record.mark or after.party.record.status in (READING, DONE)


def _record(local: Any) -> GroupRecord | None:
    """That of a node, as long as it has one."""
    record = local.party.record if isinstance(local, FsmLocal) and local.party is not None else None
    return record if isinstance(record, GroupRecord) else None


NOTHING_TO_WAIT_FOR: Final = Stepwise(
    "S18 not waited for", "who reads that the mark is gone waits no longer, and removes nothing", _waits_for_nothing
)
LEFT_ALONE: Final = Stepwise(
    "S18 left alone",
    "who waits for the end of what it has destroyed destroys nothing that is declared after it",
    _begins_nothing_anew,
)


def _make_stored(ours: Configuration, claim: Claim | None) -> Map[str, StoredRecord]:
    """A group with progress, and what its last leader left of its claim."""
    state: dict[str, Value] = {
        "properties": declaration_systems._times(ours, START),
        "progress:0.0/a": 2,
        "progress:0.0/b": 1,
    }
    if claim is not None:
        state["claim"] = claim
    return Map({declaration_systems._key(name): StoredRecord(value, 0) for name, value in state.items()})


# -- declaring ------------------------------------------------------------------------------------------------------


def _as_asked(host: Hears, start_ns: int) -> tuple[Property, ...]:
    """S18: of who declares the group it begins as it asked."""

    def view(told: Any) -> int:
        return 0 if not isinstance(told, GroupDeclared) or told.found else 1 + (told.start_ns == start_ns)

    views = (View(host.name, 3, view),)
    return (
        Always(
            f"S18 asked {host.name}", "a group begins when who declared it asked for", views, lambda told: told != 1
        ),
        Sometimes(f"S18 declared {host.name}", "it declares the group", views, lambda told: told == 2),
    )


def build_declared() -> System:
    """One asks for all that is stored, the other for what comes from now on; answers come once more."""
    ours = configuration("settled")
    first, one = declaration_systems._node(1, ours, (Declare(0),), 6, HauntedNode)
    second, other = declaration_systems._node(2, ours, (Declare(-1),), 6, HauntedNode)
    store = ReplayingStore(GroupStore(), hows=(REFUSED, OPEN), commits=NOW, wrapped=True)
    return _system(
        "declared as asked",
        (first, second, one, other, store),
        (*_as_asked(one, 0), *_as_asked(other, NOW), *(declaration_systems._once(host) for host in (one, other))),
        fails=1,
        again=1,
        told=((first, one), (second, other)),
    )


def build_declared_otherwise() -> System:
    """Two nodes of other times, as in `declared`."""
    made = declaration_systems.build_declared("small")
    return replace(
        made, name="declared otherwise", about=ABOUT["declared otherwise"], properties=(*made.properties, S1)
    )


# -- destroying -----------------------------------------------------------------------------------------------------


def _promise_found(host: Hears, found: bool) -> tuple[Property, ...]:
    """S18: who is told that a group is destroyed is told whether there was one."""

    def view(told: Any) -> int:
        return 0 if not isinstance(told, GroupDestroyed) else 1 + (told.found is found)

    views = (View(host.name, 3, view),)
    text = "it is told that there was a group" if found else "it is told that there was none"
    return (
        Always(f"S18 found {host.name}", text, views, lambda told: told != 1),
        Sometimes(f"S18 destroyed {host.name}", text, views, lambda told: told == 2),
    )


def _waits_for(claim: Claim | None, ours: Configuration) -> int:
    """How long a claim that was left so must be watched until nobody can deliver under it."""
    if claim is None or claim.clean:
        return 0
    return (ours.claim_ttl_ms * MS if claim.leader else 0) + ours.lease_by_other_clock_ns()


def build_destroyed(
    name: str,
    claim: Claim | None,
    *,
    stored: bool = True,
    nodes: int = 1,
    again: int = 0,
    fails: int = 0,
    places: int = 2,
) -> System:
    """A node of other times destroys a group, or two of its own times: who comes when it is gone knows no others."""
    theirs = configuration("settled")
    ours = (
        theirs
        if nodes > 1
        else replace(
            theirs,
            claim_ttl_ms=theirs.claim_ttl_ms - 1,
            ping_interval_ms=theirs.ping_interval_ms - 1,
            ping_timeout_ms=theirs.ping_timeout_ms - 1,
        ).check()
    )
    pairs = tuple(
        declaration_systems._node(number, ours, (Destroy(),), 9, HauntedNode) for number in range(1, nodes + 1)
    )
    kept: dict[str, Any] = {
        "hows": (REFUSED, OPEN) if fails else (),
        "state": _make_stored(theirs, claim) if stored else Map(),
    }
    store = (
        ReplayingStore(GroupStore(), wrapped=True, **kept)
        if again
        else FailingStore(GroupStore(), at_once=False, **kept)
    )
    lasts_ns = _waits_for(claim, theirs) if stored else 0
    clock = Clock(0, *((lasts_ns - 1, lasts_ns) if lasts_ns else (1, 2)))
    gone = tuple(_promise_gone(host, store, clock, lasts_ns > 0) for _, host in pairs)
    found = _promise_found(pairs[0][1], stored) if nodes == 1 else (_one_found(pairs[0][1], pairs[1][1]),)
    at_once = () if lasts_ns else (_at_once(pairs[0][1], clock),)
    return _system(
        name,
        (*(node for node, _ in pairs), *(host for _, host in pairs), store, clock),
        (*gone, *found, *at_once, *(declaration_systems._once(host) for _, host in pairs)),
        fails=fails,
        again=again,
        told=pairs,
        places=places,
    )


def _promise_gone(host: Hears, store: Any, clock: Clock, waits: bool) -> Always:
    """S18: who is told so is told when nothing is stored, and nobody can deliver any more."""
    last = len(clock.instants) - 1 if waits else 0
    views = (
        View(host.name, 2, lambda told: int(isinstance(told, GroupDestroyed))),
        View(store.name, 2, lambda local: int(declaration_systems._stored(local) is not None)),
        View(clock.name, len(clock.instants), lambda hand: hand.place),
    )
    text = "of a group that is destroyed nothing is stored, and nobody delivers under its claim any more"
    return Always(f"S18 {host.name}", text, views, lambda told, left, at: not told or (not left and at >= last))


def _one_found(one: Hears, other: Hears) -> Always:
    """S18: of two that destroy a group one at least is told that there was one."""

    def view(told: Any) -> int:
        return 0 if not isinstance(told, GroupDestroyed) else 1 + told.found

    views = (View(one.name, 3, view), View(other.name, 3, view))
    text = "of two that are told so one is told that there was a group"
    return Always("S18 found", text, views, lambda a, b: (a, b) != (1, 1))


def _at_once(host: Hears, clock: Clock) -> Sometimes:
    """L12: nobody waits for a lease that nobody can hold."""
    views = (
        View(host.name, 2, lambda told: int(isinstance(told, GroupDestroyed))),
        View(clock.name, len(clock.instants), lambda hand: hand.place),
    )
    text = "it is told before any time has passed"
    return Sometimes("L12 at once", text, views, lambda told, at: bool(told and at == 0))


def build_declared_after() -> System:
    """One destroys the group, once; the other declares it, and completes what the first has begun if it meets that.
    Whatever the store does not answer, what is declared after that stays."""
    ours = configuration("settled")
    first, one = declaration_systems._node(1, ours, (Destroy(),), 9, HauntedNode)
    second, other = declaration_systems._node(2, ours, (Declare(0),), 12, HauntedNode)
    store = FailingStore(GroupStore(), hows=(REFUSED, OPEN), at_once=False, state=_make_stored(ours, None))
    return _system(
        "declared after",
        (first, second, one, other, store),
        (
            *_promise_found(one, True),
            _spared(other, store),
            *(declaration_systems._once(host) for host in (one, other)),
            *(
                declaration_systems._sometimes(f"told {what}", other, declaration_systems.HEARD[what])
                for what in ("declared", "found")
            ),
        ),
        fails=1,
        told=((first, one), (second, other)),
    )


def _spared(host: Hears, store: Any) -> Always:
    """S18: nobody but who found the group that went before has asked for an end, so the one that was declared stays."""

    def is_there(local: StoreLocal) -> int:
        stored = declaration_systems._stored(local)
        return int(stored is not None and not stored.destroyed)

    views = (declaration_systems._first(host), View(store.name, 2, is_there))
    text = "who destroys a group destroys none that is declared after it"
    return Always(f"S18 spared {host.name}", text, views, lambda told, there: not told or bool(there))


class LedAgain(ConcurrentlyModifiedStore):
    """A group store in which a later leader takes the claim: it may as long as the group is not marked."""

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        stored = local.state.get(declaration_systems._key("properties"))
        is_led = stored is not None and not stored.value.destroyed
        return tuple(one for one in super().inputs(local) if is_led or not isinstance(one, Meddle))


def build_led_again() -> System:
    """Nobody can deliver for the group when a node reads what there is; before it marks the group a leader takes the
    claim, and is waited for."""
    theirs = configuration("settled")
    later = Claim("leader-1~9/1", EPOCH + 1)
    node, host = declaration_systems._node(1, theirs, (Destroy(),), 12)
    key = declaration_systems._key("claim")
    state = _make_stored(theirs, Claim("", EPOCH, True))
    store = LedAgain(GroupStore(), at_once=False, state=state, meddles=(Meddle(key, later),))
    lasts_ns = _waits_for(later, theirs)
    clock = Clock(0, lasts_ns - 1, lasts_ns)
    views = (
        View(host.name, 2, lambda told: int(isinstance(told, GroupDestroyed))),
        View(store.name, 2, lambda local: int(local.state[key].value == later)),
        View(clock.name, 3, lambda hand: hand.place),
    )
    waited = "who is told that a group is destroyed is told when nobody can deliver under the claim of a later leader"
    return _system(
        "led again",
        (node, host, store, clock),
        (
            Always("S18 later", waited, views, lambda told, led, at: not (told and led) or at == 2),
            Sometimes("S18 waited", "it is told after a later leader", views, lambda told, led, at: told and led),
            _at_once(host, clock),
            declaration_systems._once(host),
        ),
        told=((node, host),),
    )


# -- its pace -------------------------------------------------------------------------------------------------------


def _asks_again(actor: str, before: Any, event: Any, after: Any) -> int:
    """After a failure, or while the last lease is waited for, the store is asked again."""
    if actor == GROUP_STORE:
        return HIT if isinstance(event, Read) else NOTHING
    if actor != "node-1" or not isinstance(before, FsmLocal) or before.party is None or after.party is None:
        return NOTHING
    if after.party.record.status is DONE:
        return END
    was, now = (("again", "") in party.timers for party in (before.party, after.party))
    return BEGIN if now and not was else NOTHING


def _settles(actor: str, before: Any, event: Any, after: Any) -> int:
    """From when the progress is gone the mark goes as soon as the last lease has surely ended."""
    if actor != "node-1" or not isinstance(before, FsmLocal) or before.party is None or after.party is None:
        return NOTHING
    was, now = before.party.record.status, after.party.record.status
    if now is CLEARING and was is SETTLING:
        return HIT
    return BEGIN if now is SETTLING and was is not SETTLING and before.party.record.claim is None else NOTHING


def build_paced() -> System:
    """A group whose last leader is gone is destroyed, over a store that fails once."""
    ours = TIMES_PACED
    claim = Claim("leader-1~1/1", EPOCH)
    lasts = -(-_waits_for(claim, ours) // TICK_NS)
    node, host = declaration_systems._node(1, ours, (Destroy(),), 40)
    node.set_timing(Timing(TICK_NS, ("again",), (_claim_stamp(ours),)), GROUP)
    store = FailingStore(GroupStore(), hows=(REFUSED, OPEN), at_once=False, state=_make_stored(ours, claim))
    pace = Pace(
        (
            PaceBeat(
                "L12 asked again", "a node asks the store again after commit_interval", COMMIT, COMMIT, _asks_again
            ),
            PaceBeat(
                "L12 settled",
                "the mark goes when the last lease has surely ended",
                lasts,
                lasts + 2 * COMMIT,
                _settles,
            ),
        )
    )
    made = _system(
        "paced destruction",
        (node, host, store, Post(TICK_NS, places=2), pace, TickClock(TICK_NS)),
        pace.properties(),
        fails=1,
    )
    return replace(made, network=Network(2))


def _claim_stamp(ours: Configuration) -> Stamp:
    """When a claim was found is read as long as it is watched."""

    def over(record: GroupRecord, live: Move, dead: Move) -> Any:
        return replace(record, claim_at_ns=(dead if record.claim is None else live)(record.claim_at_ns))

    return Stamp("claim_at_ns", ours.claim_ttl_ms * MS + ours.lease_by_other_clock_ns(), over)


# -- all of them ----------------------------------------------------------------------------------------------------


def _system(
    name: str,
    actors: tuple[Any, ...],
    properties: tuple[Property, ...],
    *,
    fails: int = 0,
    again: int = 0,
    told: tuple[tuple[FsmActor, Hears], ...] = (),
    places: int = 2,
) -> System:
    budgets: list[Budget] = []
    if fails:
        budgets.append(at_most("request that the store fails", fails, Fail))
    if again:
        budgets.append(at_most("answer that comes once more", again, Again))
    return System(
        name,
        ABOUT[name],
        actors,
        Network(places),
        (
            S1,
            ECHO,
            LEFT_ALONE,
            NOTHING_TO_WAIT_FOR,
            *stray_messages.of_groups(one.name for one in actors if isinstance(one, FsmActor)),
            *properties,
        ),
        tuple(budgets),
        bounds={"stores": "requests are carried out at once, answers travel"},
        obligations=declaration_systems._told_at_last(*told),
    )


ABOUT: Final = {
    "declared as asked": "two nodes ask for a group with other starts; answers come once more",
    "declared otherwise": "two nodes with other times declare one group",
    "destroyed once": "a group is destroyed by a node of other times; answers come once more",
    "destroyed by two": "two nodes destroy a group",
    "destroyed at once": "two nodes destroy a group that was never led, and both begin before either has marked it",
    "declared after": "a node destroys a group that was never led, another declares it, and may complete that first",
    "destroyed unclean": "a group is destroyed whose last leader gave its claim up while somebody might hold a lease",
    "destroyed clean": "a group is destroyed that nobody can deliver for any more",
    "destroyed unled": "a group is destroyed that was never led",
    "nothing to destroy": "a group that is not there is destroyed",
    "led again": "a group is destroyed, and before it is marked a later leader takes its claim",
    "paced destruction": "how soon a node asks again, and is told, that destroys a group",
}
GONE: Final = Claim("leader-1~1/1", EPOCH)
BUILDS: Final[dict[str, Callable[[], System]]] = {
    "declared as asked": build_declared,
    "declared otherwise": build_declared_otherwise,
    "destroyed once": partial(build_destroyed, "destroyed once", GONE, again=1, fails=1),
    "destroyed by two": partial(build_destroyed, "destroyed by two", GONE, nodes=2, places=1),
    "destroyed at once": partial(build_destroyed, "destroyed at once", None, nodes=2),
    "declared after": build_declared_after,
    "destroyed unclean": partial(build_destroyed, "destroyed unclean", Claim("", EPOCH)),
    "destroyed clean": partial(build_destroyed, "destroyed clean", Claim("", EPOCH, True)),
    "destroyed unled": partial(build_destroyed, "destroyed unled", None),
    "nothing to destroy": partial(build_destroyed, "nothing to destroy", None, stored=False),
    "led again": build_led_again,
    "paced destruction": build_paced,
}
DIRECTED_SYSTEMS: Final = tuple(
    DirectedSystem(name, ABOUT[name], build, lambda made: made.obligations) for name, build in BUILDS.items()
)

"""Member systems: small closed systems of a leader whose members say anything at any time, or do at once as they are
told.

What is sent arrives within the step, so that nothing is counted twice: how a member is registered, given streams, taken
back from and given up is seen in few states, and every timer that belongs to it can be counted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Map, Message, in_order, name_of
from statemachines.shared_subscriptions.assignment import (
    GRANTING,
    REVOKED,
    REVOKING,
    AssignmentRecord,
    GrantTimeout,
    RevokeTimeout,
)
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.leader_record import RELEASING, SERVING
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED, ExpiryTimer, HandOverTimer
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.progress_cover import MeasureTimer
from statemachines.shared_subscriptions.stream_store import FetchFailed, StreamStore
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Property, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.shared_subscriptions import leader_steps, pace_systems, properties, quiescent_properties
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost, LeaderHostLocal
from statemachines_spec.shared_subscriptions.pace_systems import (
    BEAT,
    BEGIN,
    END,
    ENDLESS,
    HIT,
    HOST,
    NOTHING,
    TIMES_PACED,
    Pace,
    PaceBeat,
)
from statemachines_spec.shared_subscriptions.step_properties import STEPWISE, leader_of
from statemachines_spec.shared_subscriptions.stores import (
    REFUSED,
    Fail,
    FailingStore,
    Store,
    make_declared_store,
    streams,
)
from statemachines_spec.shared_subscriptions.succession import TICK_NS, of_leader
from statemachines_spec.shared_subscriptions.variants import configuration

Words = Callable[["ToldMembers", str, int], Iterator[Any]]
"""(what the member was told, a stream, the number of its last grant) -> what it may say of that."""


class Speak(Event, frozen=True, gc=False):
    """The member says so; `kind`: what it is called, for those that have the same fields."""

    said: Any
    kind: str


class ToldMembers(msgspec.Struct, frozen=True, gc=False):
    """What a member was told: `link`: (leader, epoch, registration); the last of the `grants` of each stream."""

    link: tuple[str, int, int] | None = None
    grants: Map[str, int] = Map()


class DirectHost(LeaderHost):
    """What it sends arrives within the step."""

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        reaction = super().react(local, envelope, watch)
        return None if reaction is None else replace(reaction, sends=(), calls=(*reaction.calls, *reaction.sends))


class Talker(Actor):
    """One member, who says `words` of its streams, or asks, at any time; `pings` it; `stale`: it speaks under the
    registration before its own, too; `leaves`: it has a last word."""

    def __init__(
        self, name: str, words: Words, *, pings: bool = True, stale: bool = False, leaves: bool = True
    ) -> None:
        super().__init__(name)
        self.id = f"{name}~1/1"
        self.words = words
        self.pings = pings
        self.stale = stale
        self.leaves = leaves

    def initial(self) -> ToldMembers:
        return ToldMembers()

    def inputs(self, local: ToldMembers) -> tuple[Any, ...]:
        return tuple(Speak(one, name_of(type(one))) for one in self._says(local))

    def _says(self, local: ToldMembers) -> Iterator[Any]:
        yield LeaderWanted(self.id, GROUP, FILTER)
        if local.link is None:
            return
        _, epoch, registration = local.link
        if self.pings:
            yield Ping(self.id, epoch, registration, 1)
        if self.stale:
            yield Ping(self.id, epoch, registration - 1, 1)
        for stream, grant in in_order(local.grants):
            yield from self.words(local, stream, grant)
        if self.leaves:
            yield Disconnect(self.id, epoch, registration)

    def react(self, local: ToldMembers, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Speak(said):
                to = HOST if isinstance(said, LeaderWanted) or local.link is None else local.link[0]
                after = ToldMembers() if isinstance(said, Disconnect) else local
                return Reaction(after, (), (Envelope(self.id, to, said),))
            case LeaderConnectResponse(_, leader, epoch, registration):
                known = local.link == (leader, epoch, registration)
                return Reaction(local if known else ToldMembers((leader, epoch, registration)))
            case Grant(stream=stream, grant=grant):
                local = replace(local, grants=local.grants.set(stream, grant))
            case Invalidate(epoch=epoch, registration=registration):
                ours = local.link is not None and local.link[1:] == (epoch, registration)
                return Reaction(ToldMembers() if ours else local)
        return Reaction(local, (), tuple(self._answers(local, envelope.event)))

    def _answers(self, local: ToldMembers, event: Any) -> Iterator[Envelope]:
        """Nothing, unless it does as it is told."""
        return iter(())


class ObedientMember(Talker):
    """A member that does at once what it is told."""

    def _answers(self, local: ToldMembers, event: Any) -> Iterator[Envelope]:
        if local.link is None:
            return
        leader, epoch, registration = local.link
        match event:
            case Grant(stream=stream, grant=grant, progress=progress):
                yield self._to(leader, UpdateProgress(self.id, epoch, registration, stream, grant, progress, False))
            case Revoke(stream=stream, grant=grant):
                yield self._to(leader, UpdateProgress(self.id, epoch, registration, stream, grant, 0, True))
            case Revoked(stream=stream, grant=grant):
                yield self._to(leader, RevokeFinished(self.id, epoch, registration, stream, grant))

    def _to(self, leader: str, message: Message) -> Envelope:
        return Envelope(self.id, leader, message)


Talker.environments = (
    Environment(
        "the process of the member",
        "it asks, pings, and says of its streams what the system has it say, at any time",
        (Talker, ObedientMember),
    ),
)


# -- what members say -----------------------------------------------------------------------------------------------


def _progress(told: ToldMembers, stream: str, grant: int, progress: int, finished: bool = False) -> UpdateProgress:
    assert told.link is not None
    _, epoch, registration = told.link
    return UpdateProgress(WHO, epoch, registration, stream, grant, progress, finished)


def _lets_go(told: ToldMembers, stream: str, grant: int) -> RevokeFinished:
    assert told.link is not None
    _, epoch, registration = told.link
    return RevokeFinished(WHO, epoch, registration, stream, grant)


def anything(told: ToldMembers, stream: str, grant: int) -> Iterator[Any]:
    """It has the stream, or had it once; it gives it back, or did once."""
    for number in (grant - 1, grant):
        yield _progress(told, stream, number, 0)
        yield _lets_go(told, stream, number)


def of_ends(told: ToldMembers, stream: str, grant: int) -> Iterator[Any]:
    """The stream is at its end; it is given back."""
    yield _progress(told, stream, grant, END_OF_STREAM)
    yield _lets_go(told, stream, grant)


def of_end(told: ToldMembers, stream: str, grant: int) -> Iterator[Any]:
    """The stream is read to its end, and finished."""
    yield _progress(told, stream, grant, END_OF_STREAM, True)


def of_revokes(told: ToldMembers, stream: str, grant: int) -> Iterator[Any]:
    """So much of the stream is read; it is finished; it is given back."""
    for progress in (0, 1):
        yield _progress(told, stream, grant, progress, progress == 0)
    yield _progress(told, stream, grant, 0)
    yield _lets_go(told, stream, grant)


def lies(told: ToldMembers, stream: str, grant: int) -> Iterator[Any]:
    """More than is stored is read of the stream; or that is a last word."""
    assert told.link is not None
    _, epoch, registration = told.link
    yield _progress(told, stream, grant, BEYOND)
    yield Disconnect(WHO, epoch, registration, (Report(stream, grant, BEYOND, False),))


def ends(name: str) -> Words:
    """What the member of that name has is read to its end."""

    def words(told: ToldMembers, stream: str, grant: int) -> Iterator[Any]:
        assert told.link is not None
        _, epoch, registration = told.link
        yield UpdateProgress(f"{name}~1/1", epoch, registration, stream, grant, END_OF_STREAM, True)

    return words


# -- what is counted ------------------------------------------------------------------------------------------------

MEMBER: Final = "consumer-1"
WHO: Final = f"{MEMBER}~1/1"
BEYOND: Final = 5


def _one(local: Any) -> AssignmentRecord | None:
    record = leader_of(local)
    return None if record is None else record.assignments.get(pace_systems.STREAM)


def _number(local: Any, statuses: tuple[Any, ...]) -> int:
    """The grant that is in one of these statuses (0: none is)."""
    one = _one(local)
    return one.grant if one is not None and one.status in statuses else 0


def _make_beat(kind: type[Message], *statuses: Any) -> Any:
    """The leader says the same again as long as it is not answered."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        if actor == MEMBER:
            return BEAT if isinstance(event, kind) else NOTHING
        was, now = (_number(one, statuses) if actor == HOST else 0 for one in (before, after))
        return END if was and was != now else NOTHING

    return of


def _given_up(timeout: type[Any], *statuses: Any) -> Any:
    """Who does not answer, or does not give back, is given up."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        was, now = (_number(one, statuses) if actor == HOST else 0 for one in (before, after))
        if was == now:
            return NOTHING
        if was and isinstance(event, timeout):
            return HIT
        return BEGIN if now else END

    return of


def _member(local: Any) -> Any:
    record = leader_of(local)
    return None if record is None else record.members.get(WHO)


def _is_own(member: Any, event: Any) -> bool:
    """The member says something under its registration, or asks once more for it."""
    return isinstance(event, LeaderWanted) or (
        isinstance(event, Ping | UpdateProgress | RevokeFinished)
        and (event.epoch, event.registration) == (member.link.epoch, member.link.registration)
    )


def _expires(actor: str, before: Any, event: Any, after: Any) -> int:
    """A member that says nothing expires."""
    old, new = (_member(one) if actor == HOST else None for one in (before, after))
    if new is not None and new.status is REGISTERED:
        return BEGIN if _is_own(new, event) else NOTHING
    if old is None or old.status is not REGISTERED:
        return NOTHING
    return HIT if isinstance(event, ExpiryTimer) else END


def _held_from_ping(actor: str, before: Any, event: Any, after: Any) -> int:
    """What a member had is nobody else's before the lease of its last answered ping has surely ended."""
    old, new = (_member(one) if actor == HOST else None for one in (before, after))
    if old is not None and new is None:
        return HIT if old.status is LAPSED and not isinstance(event, Disconnect) else END
    registered = new is not None and new.status is REGISTERED
    return BEGIN if registered and isinstance(event, Ping) and _is_own(new, event) else NOTHING


def _handed_over(actor: str, before: Any, event: Any, after: Any) -> int:
    """A lease that may hold is not waited for any longer than it can last."""
    old, new = (_member(one) if actor == HOST else None for one in (before, after))
    if new is not None and new.status is LAPSED:
        return BEGIN if old is None or old.status is not LAPSED else NOTHING
    if old is None or new is not None:
        return NOTHING
    return HIT if isinstance(event, HandOverTimer) else END


def _measured(actor: str, before: Any, event: Any, after: Any) -> int:
    """What the store did not say is asked again; sooner only where something else is to be asked; not by who goes."""
    old, new = (leader_of(one) if actor == HOST else None for one in (before, after))
    if old is None:
        return NOTHING
    if new is None or new.status is RELEASING:
        return END
    if isinstance(event, MeasureTimer):
        return HIT
    if isinstance(event, FetchFailed) and event.n == old.measure_n:
        return BEGIN
    return END if new.measure_n and not old.measure_n else NOTHING


def _told_invalid(actor: str, before: Any, event: Any, after: Any) -> int:
    """Who speaks under no registration is told so at once."""
    if actor == MEMBER:
        return HIT if isinstance(event, Invalidate) else NOTHING
    record = leader_of(before) if actor == HOST and isinstance(event, Ping | UpdateProgress) else None
    if record is None or record.status not in SERVING:
        return NOTHING
    member = record.members.get(event.borrower)
    known = member is not None and member.status is REGISTERED and _is_own(member, event)
    return NOTHING if known else BEGIN


GRANTED_AGAIN: Final = PaceBeat("L2 said again", "a grant that is not answered is said again every resend_interval",
                            pace_systems.RESEND, pace_systems.RESEND, _make_beat(Grant, GRANTING))  # fmt: skip
GIVEN_UP: Final = PaceBeat("L11 paced", "who does not answer a grant is given up after grant_timeout",
                       pace_systems.GRANT, pace_systems.GRANT, _given_up(GrantTimeout, GRANTING))  # fmt: skip
REVOKED_SAID: Final = PaceBeat(
    "L3 said over",
    "that a stream is revoked is said again, the first time when the grant was",
    0,
    pace_systems.RESEND,
    _make_beat(Revoked, REVOKED),
)
REVOKED_AGAIN: Final = PaceBeat("L3 over again", "that a stream is revoked is said again every resend_interval",
                            pace_systems.RESEND, pace_systems.RESEND, pace_systems._said_over_again)  # fmt: skip
NOT_GIVEN_BACK: Final = PaceBeat("L3 paced", "who does not give back is given up after revoke_timeout",
                             pace_systems.REVOKE, pace_systems.REVOKE,
                             _given_up(RevokeTimeout, REVOKING, REVOKED))  # fmt: skip
EXPIRES: Final = PaceBeat("L9 paced", "who says nothing expires after a validity",
                      pace_systems.VALIDITY, pace_systems.VALIDITY, _expires)  # fmt: skip
HELD: Final = PaceBeat("S5 held", "what a member had is nobody else's before its lease has ended",
                   pace_systems.HAND_OVER, ENDLESS, _held_from_ping)  # fmt: skip
HANDED_OVER: Final = PaceBeat("S5 paced", "an end of a lease is waited for as long as it may last",
                          0, pace_systems.HAND_OVER, _handed_over)  # fmt: skip
TOLD_SO: Final = PaceBeat("S11 told", "who speaks under no registration is told so", 0, 0, _told_invalid)
IDLE_STOP, UNHEARD = pace_systems.IDLE_STOP, pace_systems.UNHEARD
MEASURED: Final = PaceBeat("L5 measured", "what the store did not say is asked again after commit_interval",
                       pace_systems.COMMIT, pace_systems.COMMIT, _measured)  # fmt: skip


# -- the systems ----------------------------------------------------------------------------------------------------


def talking(
    name: str, talker: Talker, timers: tuple[str, ...], beats: tuple[PaceBeat, ...], *, grants: int = 2, fails: int = 0
) -> System:
    """A leader and one member, by the clock."""
    pace = Pace(beats)
    silent = tuple(timer for timer in LeaderHost(HOST, TIMES_PACED).fsm.timer_registry() if timer not in timers)
    host = DirectHost(HOST, TIMES_PACED, silent=silent, grants=grants)
    host.set_timing(of_leader(TIMES_PACED, timers))
    held = streams(("a",), 1, ended=True)
    messages = FailingStore(StreamStore(1), hows=(REFUSED,), state=held) if fails else Store(StreamStore(1), state=held)
    group = Store(GroupStore(), state=make_declared_store(TIMES_PACED), roots=1)
    return System(
        name,
        ABOUT[name],
        (talker, host, group, messages, pace, TickClock(TICK_NS)),
        Network(1),
        (*_promises(), *pace.properties()),
        (at_most("request that the stream store fails", fails, Fail),) if fails else (),
        bounds={"messages": "arrive within the step that sends them"},
    )


def build_even(name: str, members: int, topics: str) -> System:
    """Members come and go, and streams end: whoever is there has as many as the others."""
    ours = configuration("settled")
    names = tuple(f"consumer-{number + 1}" for number in range(members))
    host = DirectHost(HOST, ours, registrations=members + 1, grants=2 * len(topics) + 1)
    stores = (
        Store(GroupStore(), state=make_declared_store(ours)),
        Store(StreamStore(1), state=streams(tuple(topics), 1, ended=True)),
    )
    given = View(HOST, 2, lambda local: int(_all_given(local, members)))
    return System(
        name,
        ABOUT[name],
        (*(ObedientMember(one, ends(one), pings=False) for one in names), host, *stores),
        Network(1),
        (
            *_promises(),
            quiescent_properties.make_balanced((HOST,)),
            Sometimes("L4 given", "everybody has a stream", (given,), bool),
        ),
        bounds={"messages": "arrive within the step that sends them"},
    )


def revoking() -> System:
    """One member says how far it has read of what is taken back, in any order; the other comes and goes."""
    ours = configuration("settled")
    host = DirectHost(HOST, ours, registrations=2, grants=3)
    stores = (Store(GroupStore(), state=make_declared_store(ours)), Store(StreamStore(1), state=streams(("a", "b"), 2)))
    other = "consumer-2"
    revoked = View(HOST, 2, lambda local: int(_number(local, (REVOKED,)) > 0))
    return System(
        "talking of revokes",
        ABOUT["talking of revokes"],
        (Talker(MEMBER, of_revokes, leaves=False), ObedientMember(other, ends(other), pings=False), host, *stores),
        Network(1),
        (*_promises(), Sometimes("L3 revoked", "a stream is taken back", (revoked,), bool)),
        bounds={"messages": "arrive within the step that sends them"},
    )


def _all_given(local: Any, members: int) -> bool:
    record = leader_of(local)
    owners = [] if record is None else [one.link.borrower for _, one in in_order(record.assignments)]
    return len(set(owners)) == members


def _promises() -> tuple[Property, ...]:
    return (
        *(one for one in properties.STEPWISE if one.name != "S4"),
        *STEPWISE,
        *leader_steps.promises((HOST,)),
    )


ABOUT: Final = {
    "talking": "a member says anything at any time: how long its grant, and itself, are waited for",
    "talking of nothing": "a member comes and goes, or expires, with or without a stream: how long its leader stays",
    "talking of ends": "a member says that its stream has ended, and gives it back, or does not",
    "talking lies": "a member says more than is stored, over a stream store that fails once",
    "talking of revokes": "a member says how far it has read of a stream that another member is to have",
    "even": "two members come and go, and their three streams end",
}
BUILDS: Final[dict[str, Callable[[], System]]] = {
    "talking": partial(
        talking,
        "talking",
        Talker(MEMBER, anything, stale=True),
        ("resend", "grant_timeout", "expiry", "hand_over"),
        (GRANTED_AGAIN, GIVEN_UP, EXPIRES, HELD, HANDED_OVER, TOLD_SO),
    ),
    "talking of nothing": partial(
        talking,
        "talking of nothing",
        Talker(MEMBER, of_end),
        ("expiry", "idle"),
        (EXPIRES, IDLE_STOP, UNHEARD),
        grants=1,
    ),
    "talking of ends": partial(
        talking,
        "talking of ends",
        Talker(MEMBER, of_ends),
        ("resend", "revoke_timeout", "hand_over", "idle"),
        (REVOKED_SAID, REVOKED_AGAIN, NOT_GIVEN_BACK, HELD, HANDED_OVER, IDLE_STOP, UNHEARD),
        grants=1,
    ),
    "talking lies": partial(
        talking,
        "talking lies",
        Talker(MEMBER, lies),
        ("measure", "hand_over", "idle"),
        (MEASURED, HELD, HANDED_OVER, IDLE_STOP, UNHEARD),
        grants=1,
        fails=1,
    ),
    "talking of revokes": revoking,
    "even": partial(build_even, "even", 2, "abc"),
}
DIRECTED_SYSTEMS: Final = tuple(DirectedSystem(name, ABOUT[name], build) for name, build in BUILDS.items())

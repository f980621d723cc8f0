"""Pace systems: small timed systems in which somebody counts how often a leader does what it repeats, and how long it
waits.

Clocks do not drift here: margins are those of other timed systems.

Pace: how often a leader does what it does again and again, and how long it waits: counted in ticks by somebody who
looks on.

A *beat* is something that comes at least and at most so many ticks after something else: a batch after the batch
before, a look at the claim after one that failed, the grant after the grant that nobody answered.  What is set for
twice the time comes too late, what is set for half of it too early.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Message, in_order
from statemachines.shared_subscriptions.assignment import (
    GRANTING,
    REVOKED,
    REVOKING,
    GrantTimeout,
    ResendTimer,
    RevokeTimeout,
)
from statemachines.shared_subscriptions.claim import ClaimEnd
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    GroupStore,
    Properties,
    Read,
    ReadDone,
    Refused,
    StoredRecord,
    StoreFailed,
    record_key,
)
from statemachines.shared_subscriptions.leader_record import (
    CANDIDATE,
    CLAIMED,
    FOLLOWER,
    HOLDING,
    LOADING,
    LOOKING,
    RELEASING,
    SERVING,
    LeaderRecord,
)
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED, ExpiryTimer, HandOverTimer
from statemachines.shared_subscriptions.message import LeaderWanted, Ping, Revoked, UpdateProgress
from statemachines.shared_subscriptions.names import record_name
from statemachines.shared_subscriptions.stream_store import FetchFailed, ListStreams, StreamStore
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.actor import Actor, Envelope, Observer, Passed, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.post import Carry, Post
from statemachines_spec.explorer.property import Always, Property, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.shared_subscriptions import claims, leader_steps, properties
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP, Consumer, ConsumerLocal, SilentConsumer
from statemachines_spec.shared_subscriptions.leader_host import QUIET_TIMERS, LeaderHost
from statemachines_spec.shared_subscriptions.leader_steps import ConcurrentlyModifiedStore, Meddle
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.step_properties import leader_of
from statemachines_spec.shared_subscriptions.stores import (
    DROPPED,
    OPEN,
    REFUSED,
    Fail,
    FailingStore,
    Store,
    StoreFailure,
    StoreLocal,
    holder,
    make_declared_store,
    streams,
)
from statemachines_spec.shared_subscriptions.succession import TICK_NS, TIMES, CandidateHost, of_leader
from statemachines_spec.shared_subscriptions.systems import build

NOTHING, BEGIN, HIT, BEAT, AGAIN, END = range(6)
"""What a transition is for a beat: nothing; it is waited for from now on (anew, if it was); it comes; it comes, and is
waited for from now on; the same, if it was waited for; it is not waited for any more."""


ENDLESS = -1
"""In place of the most: it may come as late as it likes."""


class PaceBeat(msgspec.Struct, frozen=True):
    """`name` of the property and its `text`; from `least` to `most` ticks (or `ENDLESS`); `of(actor, before, event,
    after)`: what a transition of a component is for it."""

    name: str
    text: str
    least: int
    most: int
    of: Callable[[str, Any, Any, Any], int]

    @property
    def counted_ticks(self) -> int:
        """Ticks beyond this make no difference."""
        return self.least if self.most == ENDLESS else self.most + 1


class Signs(Event, frozen=True, gc=False):
    """What a transition is for each beat."""

    each: tuple[int, ...]


class Paces(msgspec.Struct, frozen=True, gc=False):
    """`ticks` that each beat has been waited for (-1: it is not); `wrong`: the number of the one that came too early or
    too late (-1: none)."""

    ticks: tuple[int, ...]
    wrong: int = -1


class Pace(Observer):
    """Counts for all beats of a system."""

    keeps_time = True

    def __init__(self, beats: Sequence[PaceBeat], name: str = "pace") -> None:
        super().__init__(name)
        self.beats = tuple(beats)

    def initial(self) -> Paces:
        return Paces((-1,) * len(self.beats))

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        each = tuple(beat.of(actor, before, event, after) for beat in self.beats)
        return Signs(each) if any(each) else None

    def react(self, local: Paces, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        for number, beat in enumerate(self.beats):
            passed = event.ticks if isinstance(event, Passed) else 0
            sign = NOTHING if isinstance(event, Passed) else event.each[number]
            local = _count_beat(local, number, beat, sign, passed)
        return Reaction(local)

    def describe(self, local: Paces) -> str:
        counted = (f"{one.name} for {ticks}" for one, ticks in zip(self.beats, local.ticks, strict=True) if ticks >= 0)
        return ", ".join(counted) or "nothing is waited for"

    def properties(self) -> tuple[Property, ...]:
        """Every beat comes in time; and sometimes its time comes."""
        made: list[Property] = []
        for number, beat in enumerate(self.beats):
            span = str(beat.least) if beat.least == beat.most else f"{beat.least} to {beat.most}"
            span = f"at least {beat.least}" if beat.most == ENDLESS else span
            text = f"{beat.text}: {span} ticks"
            made.append(Always(beat.name, text, (View(self.name, 2, _is_wrong(number)),), lambda wrong: not wrong))
            few = max(1, beat.least)
            came = View(self.name, 2, _has_waited(number, few))
            if beat.most:  # what comes within the same tick is never seen to be waited for
                made.append(Sometimes(f"{beat.name} waited", f"{few} ticks have been waited", (came,), bool))
        return tuple(made)


def _count_beat(local: Paces, number: int, beat: PaceBeat, sign: int, passed: int) -> Paces:
    ticks = local.ticks[number]
    waited = ticks if ticks < 0 else min(ticks + passed, beat.counted_ticks)
    comes = sign in (HIT, BEAT, AGAIN) and waited >= 0
    wrong = waited > beat.most != ENDLESS or (comes and waited < beat.least)
    after = {NOTHING: waited, BEGIN: 0, BEAT: 0, AGAIN: min(waited, 0)}.get(sign, -1)
    counted = (*local.ticks[:number], after, *local.ticks[number + 1 :])
    return replace(local, ticks=counted, wrong=number if wrong and local.wrong < 0 else local.wrong)


def _is_wrong(number: int) -> Callable[[Paces], int]:
    return lambda local: int(local.wrong == number)


def _has_waited(number: int, few: int) -> Callable[[Paces], int]:
    return lambda local: int(local.ticks[number] >= few)


TIMES_PACED: Final = replace(
    TIMES,
    commit_interval_ms=8,
    claim_heartbeat_ms=16,
    claim_ttl_ms=64,
    renew_streams_ms=12,
    idle_stop_ms=40,
    resend_interval_ms=8,
    grant_timeout_ms=28,
    revoke_timeout_ms=20,
).check()
"""Every time two ticks at least, so that half of it is less."""
COMMIT, HEARTBEAT, RENEW, IDLE, RESEND, GRANT, REVOKE, VALIDITY, HAND_OVER = 2, 4, 3, 10, 2, 7, 5, 6, 5
"""The same in ticks; how long a lease is waited for is L (1+d)/(1-d)."""
OWN: Final = -(-TIMES_PACED.claim_by_own_clock_ns() // TICK_NS)
"""Ticks to the end of a claim by its holder's own clock."""

HOST: Final = "leader-1"

# -- what is seen ---------------------------------------------------------------------------------------------------


def _put_claim(event: Any) -> Claim | None:
    """The claim that a batch puts."""
    if not isinstance(event, Commit):
        return None
    found = next((value for key, value in event.put if record_name(key).name == "claim"), None)
    return found if isinstance(found, Claim) else None


def _names(event: Any) -> tuple[str, ...]:
    """The records that are read."""
    return tuple(record_name(key).name for key in event.keys) if isinstance(event, Read) else ()


def _has_gone(actor: str, before: Any, after: Any) -> bool:
    """The host's leader has ended, or gives its claim up."""
    old, new = leader_of(before), leader_of(after)
    return actor == HOST and old is not None and (new is None or new.status is RELEASING)


def renewal(actor: str, before: Any, event: Any, after: Any) -> int:
    """A batch that keeps the claim, the one that took it among them."""
    if _has_gone(actor, before, after):
        return END
    claim = _put_claim(event) if actor == GROUP_STORE else None
    return NOTHING if claim is None else BEAT if claim.leader else END


def first_renewal(actor: str, before: Any, event: Any, after: Any) -> int:
    """The first batch after it was found out that the claim had been taken."""
    if _has_gone(actor, before, after):
        return END
    if actor == GROUP_STORE:
        return NOTHING if _put_claim(event) is None else HIT
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is None or new is None or not isinstance(event, ReadDone):
        return NOTHING
    return BEGIN if (old.status, new.status) == (CANDIDATE, LOADING) else NOTHING


def next_renewal(actor: str, before: Any, event: Any, after: Any) -> int:
    """The batch after one that was answered, where nothing is to be committed."""
    if _has_gone(actor, before, after):
        return END
    old = leader_of(before) if actor == HOST else None
    if isinstance(event, Committed) and old is not None and old.status in CLAIMED:
        return BEGIN
    if _put_claim(event) is None or actor != GROUP_STORE:
        return NOTHING
    return END if any(record_name(key).name.startswith("progress") for key, _ in event.put) else HIT


def ends_in_time(actor: str, before: Any, event: Any, after: Any) -> int:
    """Who cannot renew its claim has ended when it may be taken: counted from the last batch that may have been
    carried out."""
    if actor == GROUP_STORE:
        claim, held = _put_claim(event), holder(before) if isinstance(before, StoreLocal) else None
        return BEGIN if claim is not None and held is not None and claim.leader == held.leader else NOTHING
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is None:
        return NOTHING
    if new is None:
        return END
    return BEGIN if new.status in HOLDING and old.status not in HOLDING else NOTHING


def claim_is_kept(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L6: the claim of who can renew it in time never ends."""
    return not isinstance(event, ClaimEnd)


def listing(actor: str, before: Any, event: Any, after: Any) -> int:
    """A listing that is asked for; what becomes of one that failed is another beat."""
    if _has_gone(actor, before, after) or (actor == HOST and isinstance(event, FetchFailed)):
        return END
    return BEAT if isinstance(event, ListStreams) else NOTHING


def is_listed_again(actor: str, before: Any, event: Any, after: Any) -> int:
    """A leader that serves lists again after a listing has failed."""
    if _has_gone(actor, before, after):
        return END
    record = leader_of(before) if actor == HOST else None
    if isinstance(event, FetchFailed) and record is not None and record.status in SERVING:
        return BEGIN
    return HIT if isinstance(event, ListStreams) else NOTHING


def read_again(actor: str, before: Any, event: Any, after: Any) -> int:
    """Who looks for the claim, or loads, reads again after a store has failed."""
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is not None and (new is None or new.status not in (*LOOKING, LOADING)):
        return END
    if isinstance(event, StoreFailed | FetchFailed) and old is not None and old.status in (*LOOKING, LOADING):
        is_batch = old.status is LOADING and old.trial is not None and event.n in (old.trial.n, old.trial.check_n)
        return NOTHING if is_batch else BEGIN
    return HIT if _names(event) in (("claim", "properties"), ("root",)) else NOTHING


def is_checked(actor: str, before: Any, event: Any, after: Any) -> int:
    """What became of a batch is looked up after the store has failed."""
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is not None and (new is None or new.status not in CLAIMED):
        return END
    if isinstance(event, StoreFailed) and old is not None and old.status in CLAIMED and old.trial is not None:
        return BEGIN if event.n in (old.trial.n, old.trial.check_n) else NOTHING
    return HIT if _names(event) == ("claim", "root") else NOTHING


def idle(actor: str, before: Any, event: Any, after: Any) -> int:
    """A leader that nobody needs gives its claim up."""
    if actor == GROUP_STORE:
        claim = _put_claim(event)
        return HIT if claim is not None and not claim.leader else NOTHING
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is None or (new is not None and new.status is RELEASING):
        return NOTHING
    was, now = (one is not None and one.status in SERVING and not one.members and not one.asked for one in (old, new))
    return BEGIN if now and not was else END if was and not now else NOTHING


def unheard(actor: str, before: Any, event: Any, after: Any) -> int:
    """A leader that has answered no ping of its members gives its claim up, even where they have expired by then."""
    if actor == GROUP_STORE:
        claim = _put_claim(event)
        return HIT if claim is not None and not claim.leader else NOTHING
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is None or (new is not None and new.status is RELEASING):
        return NOTHING
    was, now = (one is not None and one.status in SERVING and one.asked for one in (old, new))
    return BEGIN if now and not was else END if was and not now else NOTHING


def _follows(host: str) -> Any:
    """A follower looks at the claim, again and again; nobody else does by then."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        if _names(event) == ("claim", "properties"):
            return AGAIN
        old, new = (leader_of(before), leader_of(after)) if actor == host else (None, None)
        if old is None:
            return NOTHING
        if new is None or new.status is not FOLLOWER:
            return END
        return BEGIN if old.status is not FOLLOWER else NOTHING

    return of


def _follows_idly(host: str) -> Any:
    """A follower that nobody asks ends."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        old, new = (leader_of(before), leader_of(after)) if actor == host else (None, None)
        if old is None:
            return NOTHING
        if new is None:
            return HIT
        if new.status is not FOLLOWER:
            return END
        return BEGIN if old.status is not FOLLOWER or isinstance(event, LeaderWanted) else NOTHING

    return of


def is_staged(actor: str, before: Any, event: Any, after: Any) -> int:
    """Progress that is reported is committed."""
    if actor == GROUP_STORE:
        return HIT if isinstance(event, Commit) else NOTHING
    if _has_gone(actor, before, after):
        return END
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is None or new is None:
        return NOTHING
    return BEGIN if new.staged and not old.staged and new.trial is None else NOTHING


# -- of members -----------------------------------------------------------------------------------------------------

STREAM: Final = "0.0/a"


def _is_in(record: LeaderRecord | None, *statuses: Any) -> bool:
    one = None if record is None else record.assignments.get(STREAM)
    return one is not None and one.status in statuses


def _make_beat(kind: str, *statuses: Any) -> Any:
    """The leader says the same again as long as it is not answered."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        if isinstance(event, Carry) and event.kind == kind:
            return BEAT
        return (
            END
            if actor == HOST and _is_in(leader_of(before), *statuses) and not _is_in(leader_of(after), *statuses)
            else NOTHING
        )

    return of


def _said_over_again(actor: str, before: Any, event: Any, after: Any) -> int:
    """That a stream is revoked is said again; the first time when the revoke would have been."""
    if actor != HOST or not _is_in(leader_of(before), REVOKED):
        return NOTHING
    if not _is_in(leader_of(after), REVOKED):
        return END
    return BEAT if isinstance(event, ResendTimer) else NOTHING


def _given_up(timeout: type[Any], *statuses: Any) -> Any:
    """Who does not answer, or does not give back, is given up."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        if actor != HOST:
            return NOTHING
        was, now = _is_in(leader_of(before), *statuses), _is_in(leader_of(after), *statuses)
        if was and not now:
            return HIT if isinstance(event, timeout) else END
        return BEGIN if now and not was else NOTHING

    return of


def _member(local: Any, who: str) -> Any:
    record = leader_of(local)
    return None if record is None else record.members.get(who)


def _expires(who: str) -> Any:
    """A member that says nothing expires."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        old, new = (_member(before, who), _member(after, who)) if actor == HOST else (None, None)
        if new is not None and new.status is REGISTERED:
            says = isinstance(event, Message) and getattr(event, "borrower", "") == who
            counts = not isinstance(event, LeaderWanted) or old is None
            return BEGIN if (says and counts) or old is None else NOTHING
        if old is None or old.status is not REGISTERED:
            return NOTHING
        return HIT if isinstance(event, ExpiryTimer) else END

    return of


def _handed_over(who: str) -> Any:
    """The end of a lease that may hold is not waited for any longer than it can last."""

    def of(actor: str, before: Any, event: Any, after: Any) -> int:
        old, new = (_member(before, who), _member(after, who)) if actor == HOST else (None, None)
        if new is not None and new.status is LAPSED:
            return BEGIN if old is None or old.status is not LAPSED else NOTHING
        if old is None or new is not None:
            return NOTHING
        return HIT if isinstance(event, HandOverTimer) else END

    return of


class Sluggish(Consumer):
    """Does not say that it has let go of what is revoked."""

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        return Reaction(local) if isinstance(envelope.event, Revoked) else super().react(local, envelope, watch)


def _farewell(actor: str, before: Any, event: Any, after: Any) -> int:
    """A leader that stops serving has told whom it knows."""
    if isinstance(event, Carry):
        return HIT if event.kind == "invalidate" else NOTHING
    old, new = (leader_of(before), leader_of(after)) if actor == HOST else (None, None)
    if old is None or old.status not in SERVING or (new is not None and new.status in SERVING):
        return NOTHING
    return BEGIN if any(member.status is REGISTERED for _, member in in_order(old.members)) else NOTHING


def _view_told(actor: str, before: Any, event: Any, after: Any) -> int:
    """Who speaks under no registration is told so at once."""
    if isinstance(event, Carry):
        return HIT if event.kind == "invalidate" else NOTHING
    record = leader_of(before) if actor == HOST and isinstance(event, Ping | UpdateProgress) else None
    if record is None or record.status not in SERVING:
        return NOTHING
    member = record.members.get(event.borrower)
    knows = member is not None and member.status is REGISTERED and member.link.registration == event.registration
    return NOTHING if knows else BEGIN


# -- the systems ----------------------------------------------------------------------------------------------------


def _host(number: int, timers: tuple[str, ...], leaders: int = 2, epochs: int = 3, **more: Any) -> CandidateHost:
    silent = tuple(timer for timer in QUIET_TIMERS if timer not in timers)
    host = CandidateHost(
        f"leader-{number}", TIMES_PACED, leaders=leaders, epochs=epochs, silent=silent, ages=False, **more
    )
    host.set_timing(of_leader(TIMES_PACED, timers), host.fsm)
    return host


def _alone(
    name: str,
    about: str,
    beats: tuple[PaceBeat, ...],
    *,
    failures: int = 0,
    roots: int = 4,
    leaders: int = 2,
    hows: tuple[StoreFailure, ...] = (REFUSED, OPEN),
    idles: bool = True,
) -> System:
    """A leader without members; `failures` of both stores, all together."""
    timers = ("heartbeat", "renew", "retry", "recheck", "claim_end", "grace", *(("idle",) if idles else ()))
    pace = Pace(beats)
    kept: dict[str, Any] = {"state": make_declared_store(TIMES_PACED), "roots": roots}
    held = streams(("a",), 1)
    group: Store = Store(GroupStore(), **kept)
    messages: Store = Store(StreamStore(1), state=held)
    if failures:
        group = FailingStore(GroupStore(), hows=hows, chain=4, **kept)
        unread = tuple(how for how in hows if how in (REFUSED, DROPPED))
        messages = FailingStore(StreamStore(1), hows=unread, state=held)
    host = _host(1, timers, leaders)
    return System(
        name,
        about,
        (host, group, messages, pace, TickClock(TICK_NS)),
        Network(2),
        (*claims.knows_store((HOST,)), *_promises(pace)),
        (at_most("request that a store fails", failures, Fail),) if failures else (),
        bounds={"stores": "answer within the step that asks"},
    )


def _promises(pace: Pace) -> tuple[Property, ...]:
    return (
        *(one for one in properties.STEPWISE if one.name != "S4"),
        *leader_steps.promises((HOST,)),
        *pace.properties(),
    )


RENEWAL: Final = PaceBeat("L6 renewal paced", "the claim is renewed every heartbeat", HEARTBEAT, HEARTBEAT, renewal)
LISTING: Final = PaceBeat("L2 listing paced", "streams are listed every renew_streams", RENEW, RENEW, listing)
IDLE_STOP: Final = PaceBeat("L6 idle paced", "a leader without members ends after idle_stop", IDLE, IDLE, idle)
UNHEARD: Final = PaceBeat("L6 unheard paced", "a leader that hears none of its members ends after a validity",
                      VALIDITY, VALIDITY, unheard)  # fmt: skip


FIRST_RENEWAL: Final = PaceBeat(
    "L6 first renewal",
    "a claim whose taking was in doubt is renewed a heartbeat after that",
    HEARTBEAT - COMMIT,
    HEARTBEAT - COMMIT,
    first_renewal,
)
NEXT_RENEWAL: Final = PaceBeat("L6 next renewal", "with nothing to commit the next batch comes after a heartbeat",
                           HEARTBEAT, HEARTBEAT + COMMIT, next_renewal)  # fmt: skip
OWN_END: Final = PaceBeat("S3 own end", "a leader that cannot renew its claim ends before it may be taken",
                      0, OWN, ends_in_time)  # fmt: skip
CLAIM_KEPT: Final = Stepwise("L6 kept", "with so few failures the claim is renewed in time", claim_is_kept)


def alone() -> System:
    """Nothing fails."""
    return _alone("paced", ABOUT["paced"], (RENEWAL, LISTING, IDLE_STOP))


def failing(name: str, failures: int) -> System:
    """Requests fail, or are carried out and nobody knows."""
    beats: tuple[PaceBeat, ...] = (
        replace(RENEWAL, least=COMMIT, most=HEARTBEAT + COMMIT),
        LISTING,
        PaceBeat(
            "L2 listing again", "a listing that failed is repeated after renew_streams", RENEW, RENEW, is_listed_again
        ),
        PaceBeat(
            "L6 again", "what a store did not answer is read again after commit_interval", COMMIT, COMMIT, read_again
        ),
        PaceBeat("S3 checked", "what became of a batch is found out after commit_interval", COMMIT, COMMIT, is_checked),
        replace(IDLE_STOP, most=IDLE + (COMMIT // 2 if failures == 1 else 4 * COMMIT)),
    )
    if failures == 1:
        beats = (*beats, FIRST_RENEWAL, NEXT_RENEWAL)
    made = _alone(name, ABOUT[name], beats, failures=failures, roots=4, leaders=1)
    return replace(made, properties=(*made.properties, CLAIM_KEPT))


def build_doubted() -> System:
    """A store fails once, and nobody ends for being idle."""
    beats = (replace(RENEWAL, least=COMMIT, most=HEARTBEAT + COMMIT), NEXT_RENEWAL)
    made = _alone("paced doubt", ABOUT["paced doubt"], beats, failures=1, leaders=1, idles=False)
    return replace(made, properties=(*made.properties, CLAIM_KEPT))


def silent() -> System:
    """A store does not even answer, so that the claim ends."""
    return _alone("paced silence", ABOUT["paced silence"], (OWN_END,), failures=2, leaders=1, hows=(OPEN, DROPPED))


def in_grace() -> System:
    """Leases of before are waited for."""
    made = _alone("paced grace", ABOUT["paced grace"], (RENEWAL, LISTING, IDLE_STOP), leaders=1)
    held = make_declared_store(TIMES_PACED).set(record_key(GROUP, FILTER, "claim"), StoredRecord(Claim("", 1), 0))
    store = Store(GroupStore(), state=held, roots=4)
    return replace(made, actors=tuple(store if one.name == GROUP_STORE else one for one in made.actors))


def build_refused() -> System:
    """The group is declared anew while a host takes the claim."""
    again = PaceBeat(
        "L6 refused", "who is refused the claim looks again after commit_interval", COMMIT, COMMIT, _refused
    )
    pace = Pace((again,))
    ours = make_declared_store(TIMES_PACED)
    key = record_key(GROUP, FILTER, "properties")
    properties_of = ours[key].value
    assert isinstance(properties_of, Properties)
    store = ConcurrentlyModifiedStore(
        GroupStore(), at_once=False, state=ours, roots=0, meddles=(Meddle(key, replace(properties_of, start_ns=5)),)
    )
    timers = ("heartbeat", "retry", "claim_end")
    host = CandidateHost(
        HOST, TIMES_PACED, at_once=False, silent=tuple(one for one in QUIET_TIMERS if one not in timers), ages=False
    )
    host.set_timing(of_leader(TIMES_PACED, timers), host.fsm)
    messages = Store(StreamStore(1), at_once=False, state=streams(("a",), 1))
    return System(
        "paced refusal",
        ABOUT["paced refusal"],
        (host, store, messages, Post(TICK_NS, places=2), pace, TickClock(TICK_NS)),
        Network(2),
        _promises(pace),
        bounds={"stores": "answers arrive within the tick"},
    )


def _refused(actor: str, before: Any, event: Any, after: Any) -> int:
    if isinstance(event, Read):
        return HIT
    old = leader_of(before) if actor == HOST else None
    return BEGIN if isinstance(event, Refused) and old is not None and old.status in LOOKING else NOTHING


def committing() -> System:
    """A member reports progress."""
    pace = Pace(
        (
            PaceBeat(
                "L6 renewal paced",
                "a batch comes every heartbeat, and none sooner than commit_interval",
                COMMIT,
                HEARTBEAT,
                renewal,
            ),
            PaceBeat("L8 farewell", "who is registered is told when its leader ends", 0, 0, _farewell),
            NEXT_RENEWAL,
            PaceBeat("L5 committed", "what is reported is committed within commit_interval", 0, COMMIT, is_staged),
        )
    )
    setting = GroupSetting(
        consumers=1,
        offsets=1,
        roots=3,
        network=Network(1, lossy=False, duplicating=False),
        grants=1,
        registrations=1,
        halts=1,
    )
    return _with_members("paced commits", setting, ("heartbeat", "commit", "claim_end"), pace)


def granting() -> System:
    """Nobody answers a grant."""
    who = "consumer-1~1/1"
    pace = Pace(
        (
            PaceBeat(
                "L2 said again",
                "a grant that is not answered is said again every resend_interval",
                RESEND,
                RESEND,
                _make_beat("grant", GRANTING),
            ),
            PaceBeat(
                "L11 paced",
                "who does not answer a grant is given up after grant_timeout",
                GRANT,
                GRANT,
                _given_up(GrantTimeout, GRANTING),
            ),
            PaceBeat("L9 paced", "who says nothing expires after a validity", VALIDITY, VALIDITY, _expires(who)),
            PaceBeat("S11 told", "who speaks under no registration is told so", 0, 0, _view_told),
            PaceBeat(
                "S5 paced", "an end of a lease is waited for as long as it may last", 0, HAND_OVER, _handed_over(who)
            ),
        )
    )
    setting = GroupSetting(
        consumers=1, pings=3, network=Network(1, lossy=False, duplicating=False), grants=1, registrations=1
    )
    made = _with_members("paced grants", setting, ("resend", "grant_timeout", "expiry", "hand_over"), pace)
    kept = tuple(one for one in made.properties if not isinstance(one, Sometimes) or one.name.endswith("waited"))
    return replace(made, actors=tuple(_as(SilentConsumer, actor) for actor in made.actors), properties=kept)


def _as(kind: type[Consumer], actor: Actor) -> Actor:
    """Every consumer as one of this kind."""
    if not isinstance(actor, Consumer):
        return actor
    other = copy.copy(actor)
    other.__class__ = kind
    return other


def revoking() -> System:
    """A stream is to be given back."""
    pace = Pace(
        (
            PaceBeat("S11 told", "who speaks under no registration is told so", 0, 0, _view_told),
            PaceBeat(
                "L3 said again",
                "a revoke that is not answered is said again every resend_interval",
                RESEND,
                RESEND,
                _make_beat("revoke", REVOKING),
            ),
            PaceBeat("L3 said over", "and it is said, not just waited for", 0, RESEND, _make_beat("revoked", REVOKED)),
            PaceBeat(
                "L3 over again",
                "that a stream is revoked is said again every resend_interval",
                RESEND,
                RESEND,
                _said_over_again,
            ),
            PaceBeat(
                "L3 paced",
                "who does not give back is given up after revoke_timeout",
                REVOKE,
                REVOKE,
                _given_up(RevokeTimeout, REVOKING, REVOKED),
            ),
        )
    )
    setting = GroupSetting(consumers=2, network=Network(1, lossy=False, duplicating=False), grants=2, registrations=2)
    made = _with_members("paced revokes", setting, ("resend", "revoke_timeout"), pace)
    return replace(made, actors=tuple(_as(Sluggish, actor) for actor in made.actors))


def _with_members(name: str, setting: GroupSetting, timers: tuple[str, ...], pace: Pace) -> System:
    made = build(name, ABOUT[name], setting)
    actors = (*(_paced(actor, timers) for actor in made.actors), Post(TICK_NS, places=3), pace, TickClock(TICK_NS))
    more = (*leader_steps.promises((HOST,)), *pace.properties())
    kept = tuple(one for one in made.properties if one.name not in ("S5", "L8", "L8 resets"))  # no lease ends here
    return replace(made, actors=actors, properties=(*kept, *more), budgets=(), orders=())


def _paced(actor: Actor, timers: tuple[str, ...]) -> Actor:
    """The same component, living by these times."""
    paced = copy.copy(actor)
    if isinstance(paced, Store) and paced.name == GROUP_STORE:
        paced.state = make_declared_store(TIMES_PACED)
    elif isinstance(paced, Consumer):
        paced.configuration = TIMES_PACED
        paced.silent = paced.silent | {"ping_timeout", "lease"}
    elif isinstance(paced, LeaderHost):
        paced.configuration = TIMES_PACED
        paced.silent = frozenset(paced.fsm.timer_registry()) - frozenset(timers)
        paced.set_timing(of_leader(TIMES_PACED, timers), paced.fsm)
    return paced


def following() -> System:
    """One host follows the other."""
    second = "leader-2"
    pace = Pace(
        (
            PaceBeat(
                "L6 looks paced",
                "a follower looks at the claim every commit_interval",
                COMMIT,
                COMMIT,
                _follows(second),
            ),
            PaceBeat(
                "L6 follower idle",
                "a follower that nobody asks ends after idle_stop",
                IDLE,
                IDLE,
                _follows_idly(second),
            ),
        )
    )
    store = FailingStore(GroupStore(), hows=(REFUSED,), state=make_declared_store(TIMES_PACED), roots=3)
    hosts = (_host(1, ("heartbeat", "claim_end"), 1, 1), _host(2, ("retry", "idle"), 2, 1))
    return System(
        "paced follower",
        ABOUT["paced follower"],
        (*hosts, store, Store(StreamStore(1), state=streams(("a",), 1)), pace, TickClock(TICK_NS)),
        Network(2),
        (properties.one_leader((HOST, second)), *_promises(pace)),
        (at_most("request that a store fails", 1, Fail),),
        bounds={"stores": "answer within the step that asks"},
    )


ABOUT: Final = {
    "paced": "how often a leader without members renews its claim and lists streams, and how long it stays",
    "paced failure": "the same over stores that fail once",
    "paced failures": "the same over stores that fail: how soon it asks again",
    "paced commits": "how soon what a member reports is committed",
    "paced grants": "how often a grant is said that nobody answers, and how long for",
    "paced revokes": "how often a revoke is said, and how long for",
    "paced doubt": "how soon the claim is renewed after a batch that was in doubt, or was not carried out",
    "paced silence": "over stores that may not even answer: when a leader ends that cannot renew its claim",
    "paced grace": "the same as of a leader without members, while leases of before are waited for",
    "paced refusal": "how soon who is refused the claim looks again",
    "paced follower": "how often a follower looks at the claim, and how long it stays",
}
BUILDS: Final[dict[str, Callable[[], System]]] = {
    "paced": alone,
    "paced failure": partial(failing, "paced failure", 1),
    "paced failures": partial(failing, "paced failures", 2),
    "paced commits": committing,
    "paced grants": granting,
    "paced revokes": revoking,
    "paced follower": following,
    "paced doubt": build_doubted,
    "paced silence": silent,
    "paced grace": in_grace,
    "paced refusal": build_refused,
}
DIRECTED_SYSTEMS: Final = tuple(DirectedSystem(name, ABOUT[name], build) for name, build in BUILDS.items())

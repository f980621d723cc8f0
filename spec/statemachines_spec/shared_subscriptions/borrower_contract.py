"""What a borrower owes its leader, its session and its Agent, whatever it is told: SS-01 to SS-42, SS-292."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Map, Send, Stop, Tell, in_order, keys_in_order
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    BorrowerRecord,
    Destroyed,
    FindLeaderTimer,
    GiveBack,
    LeaseBegan,
    LeaseEnd,
    LeaseEnded,
    OnDisconnect,
    OnUnsubscribe,
    PingTimeout,
    PingTimer,
    Start,
    UnsubscribeTimer,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    Undeclared,
    UpdateProgress,
)
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP

ID: Final = "consumer-1~1/1"
REGISTRIES: Final = ("leader-1", "leader-2")
SEEN: Final = 2
"""The highest epoch that the Agent knew when it made the borrower."""
PAIRED = (LeaderConnectResponse, PingResponse, Grant, Revoke, Revoked, Invalidate)
Said = tuple[Any, ...]


class HeldStream(msgspec.Struct, frozen=True, gc=False):
    """A stream that was installed, and not uninstalled: its grant, how far it has been read, whether that is final, and
    whether the session is to finish it."""

    grant: int
    progress: int
    finished: bool = False
    finishing: bool = False

    def report(self, stream: str) -> Report:
        """As pings and disconnects should have it."""
        return Report(stream, self.grant, self.progress, self.finished)


class BorrowerFacts(msgspec.Struct, frozen=True, gc=False):
    """`link`: leader, epoch and registration that were answered; `asked`: how many times a registry was, up to their
    number; `n`: of the last ping, and whether it is `open`; `leased`: as the session was told; `held` streams;
    `highest`: the highest grant that was named of each; `owed`: held streams that no answered ping has reported as they
    are now; `sent`: those of them that the last ping did; `leaving`: the client has unsubscribed; `ended`."""

    link: tuple[str, int, int] | None = None
    asked: int = -1
    n: int = 0
    open: bool = False
    leased: bool = False
    held: Map[str, HeldStream] = Map()
    highest: Map[str, int] = Map()
    owed: Map[str, bool] = Map()
    sent: Map[str, bool] = Map()
    leaving: bool = False
    ended: bool = False

    @property
    def pair(self) -> tuple[int, int]:
        """(epoch, registration) that it goes by."""
        return (0, 0) if self.link is None else self.link[1:]

    @property
    def is_connected(self) -> bool:
        """It has a leader, and the client is there."""
        return self.link is not None and not self.leaving


def pair_of(event: Any) -> tuple[int, int]:
    """That of a leader's message."""
    return (event.epoch, event.registration)


# -- what may be said -----------------------------------------------------------------------------------------------


class LeaderAlphabet(msgspec.Struct, frozen=True):
    """What may be said: by leaders of these `pairs`, who grant `streams` under so many `grants`, and take them back
    with `takes`; by the session, of these `progress`; while no more than so many `pings` are sent.  `idle`: rules that
    none of this meets."""

    pairs: tuple[tuple[int, int], ...]
    streams: tuple[str, ...] = ()
    grants: int = 1
    progress: tuple[int, ...] = (0, END_OF_STREAM)
    pings: int = 2
    takes: tuple[type[Any], ...] = (Revoke, Revoked)
    idle: tuple[str, ...] = ()


def leader_of(epoch: int) -> str:
    """Who leads under an epoch."""
    return f"leader-{1 + epoch % 2}~{epoch}/1"


class Everybody(Counterpart):
    """leaders of several epochs, a session, and a client, each of whom says anything at any time"""

    owes, ends = "S19", "S1 ends"

    def __init__(self, alphabet: LeaderAlphabet) -> None:
        super().__init__(RULES, alphabet.idle)
        self.alphabet = alphabet

    def begins(self) -> BorrowerFacts:
        return BorrowerFacts()

    def says(self, known: BorrowerFacts) -> Iterator[Any]:
        if known.ended:
            return
        if known.asked < 0:
            yield Start()
            return
        yield from self._leaders(known)
        yield from (OnUnsubscribe(), OnDisconnect(), GiveBack())
        if known.link is not None:
            yield from self._session(known)

    def _leaders(self, known: BorrowerFacts) -> Iterator[Any]:
        yield Undeclared(ID)
        if known.link is not None:
            yield from (PingResponse(ID, *known.pair, n) for n in {known.n - 1, known.n})
        for pair in self.alphabet.pairs:
            yield LeaderConnectResponse(ID, leader_of(pair[0]), *pair)
            yield Invalidate(ID, *pair)
            if pair != known.pair:
                yield PingResponse(ID, *pair, known.n)
            for stream in self.alphabet.streams:
                for grant in range(1, self.alphabet.grants + 1):
                    yield Grant(ID, *pair, stream, grant, grant - 1)
                    yield from (taken(ID, *pair, stream, grant) for taken in self.alphabet.takes)

    def _session(self, known: BorrowerFacts) -> Iterator[Any]:
        for stream in self.alphabet.streams:
            for grant in range(1, self.alphabet.grants + 1):
                yield from (StreamProgress(stream, grant, progress) for progress in self.alphabet.progress)
                held = known.held.get(stream)
                if held is not None and held.grant == grant and held.finishing:
                    yield StreamProgress(stream, grant, held.progress, True)

    # -- what comes of it ---------------------------------------------------------------------------------------

    def learns(self, known: BorrowerFacts, event: Any, said: Said) -> BorrowerFacts:
        if isinstance(event, LeaderConnectResponse) and known.link is None and event.epoch >= SEEN:
            known = replace(known, link=(event.leader, event.epoch, event.registration))
        if isinstance(event, PingResponse) and pair_of(event) == known.pair and event.n == known.n:
            owed = known.owed
            for stream in known.sent if known.open else ():
                owed = owed.delete(stream)
            known = replace(known, open=False, owed=owed, sent=Map())
        if isinstance(event, OnUnsubscribe) and known.link is not None:
            known = replace(known, leaving=True, leased=False)
        if isinstance(event, Grant | Revoke | Revoked) and pair_of(event) == known.pair and known.link is not None:
            highest = max(event.grant, known.highest.get(event.stream, 0))
            if known.is_connected or isinstance(event, Revoked):
                known = replace(known, highest=known.highest.set(event.stream, highest))
        if isinstance(event, StreamProgress) and advances(known, event):
            finished = is_final(known, event)
            known = change_stream(
                known, event.stream, replace(known.held[event.stream], progress=event.progress, finished=finished)
            )
        for effect in said:
            known = self._hears(known, effect)
        return known

    def _hears(self, known: BorrowerFacts, effect: Any) -> BorrowerFacts:
        match effect:
            case Send(_, LeaderWanted()):
                return replace(known, asked=(known.asked + 1) % len(REGISTRIES))
            case Send(_, Ping(n=n)):
                return replace(known, n=n, open=True, sent=known.owed)
            case Tell(LeaseBegan()):
                return replace(known, leased=True)
            case Tell(LeaseEnded()):
                return replace(known, leased=False)
            case Tell(Install(_, stream, grant, progress)):
                return change_stream(known, stream, HeldStream(grant, progress))
            case Tell(Finish(_, stream)):
                return change_stream(known, stream, replace(known.held[stream], finishing=True))
            case Tell(Uninstall(_, stream)):
                gone = {name: getattr(known, name) for name in ("held", "owed", "sent")}
                return replace(
                    known, **{name: each.delete(stream) if stream in each else each for name, each in gone.items()}
                )
            case Tell(Destroyed()):
                return BorrowerFacts(ended=True)
        return known


def change_stream(known: BorrowerFacts, stream: str, held: HeldStream) -> BorrowerFacts:
    """With the stream as it is now; what pings have said of it is out of date."""
    sent = known.sent.delete(stream) if stream in known.sent else known.sent
    return replace(known, held=known.held.set(stream, held), owed=known.owed.set(stream, True), sent=sent)


def advances(known: BorrowerFacts, event: StreamProgress) -> bool:
    """It is about what is held, and not behind."""
    held = known.held.get(event.stream)
    return held is not None and event.grant == held.grant and event.progress >= held.progress


def is_final(known: BorrowerFacts, event: StreamProgress) -> bool:
    """Nothing will follow it."""
    return known.held[event.stream].finished or event.finished or event.progress == END_OF_STREAM


# -- what it owes ---------------------------------------------------------------------------------------------------


def update(known: BorrowerFacts, stream: str, grant: int, progress: int, finished: bool) -> Send:
    """The progress, as its leader should hear it."""
    assert known.link is not None
    leader, epoch, registration = known.link
    return Send(leader, UpdateProgress(ID, epoch, registration, stream, grant, progress, finished))


def confirm_forgotten(known: BorrowerFacts, event: Revoke | Revoked) -> Send:
    """That a grant is forgotten."""
    assert known.link is not None
    leader, epoch, registration = known.link
    return Send(leader, RevokeFinished(ID, epoch, registration, event.stream, event.grant))


def hand_back(known: BorrowerFacts) -> Said:
    """All that is held goes back to the session."""
    return tuple(Tell(Uninstall(ID, stream, held.grant)) for stream, held in in_order(known.held))


def reset(known: BorrowerFacts, epoch: int) -> Said:
    """It ends, and the next begins from the highest epoch."""
    return (*hand_back(known), Tell(Destroyed(ID, True, max(SEEN, known.pair[0], epoch))), Stop())


def farewell(known: BorrowerFacts, said_first: Said = (), *, but: str = "", again: bool = False) -> Said:
    """It says how far it has read, and ends, for good or to begin `again`."""
    assert known.link is not None
    leader, epoch, registration = known.link
    reports = tuple(held.report(stream) for stream, held in in_order(known.held) if stream != but)
    rest = tuple(one for one in hand_back(known) if one.event.stream != but)
    last = Destroyed(ID, again, epoch, reports)
    return (*said_first, Send(leader, Disconnect(ID, epoch, registration, reports)), *rest, Tell(last), Stop())


def list_unfinished(known: BorrowerFacts) -> list[str]:
    """Streams whose final progress is not known."""
    return [stream for stream, held in in_order(known.held) if not held.finished]


def asks(known: BorrowerFacts, event: Any, said: Said) -> bool:
    registry = REGISTRIES[(known.asked + 1) % len(REGISTRIES)]
    return said == (Send(registry, LeaderWanted(ID, GROUP, FILTER)),)


def pings_at_once(known: BorrowerFacts, event: LeaderConnectResponse, said: Said) -> bool:
    return said == (Send(event.leader, Ping(ID, event.epoch, event.registration, 1)),)


def pings(known: BorrowerFacts, event: Any, said: Said) -> bool:
    assert known.link is not None
    leader, epoch, registration = known.link
    reports = tuple(known.held[stream].report(stream) for stream in keys_in_order(known.owed))
    return not known.open and said == (Send(leader, Ping(ID, epoch, registration, known.n + 1, reports)),)


def begins_lease(known: BorrowerFacts, event: PingResponse, said: Said) -> bool:
    began = known.open and event.n == known.n and not known.leaving and not known.leased
    return said == ((Tell(LeaseBegan(ID)),) if began else ())


def answers_grant(known: BorrowerFacts, event: Grant, said: Said) -> bool:
    held = known.held.get(event.stream)
    if event.grant > known.highest.get(event.stream, 0):
        back = () if held is None else (Tell(Uninstall(ID, event.stream, held.grant)),)
        begun = Tell(Install(ID, event.stream, event.grant, event.progress))
        return said == (*back, begun, update(known, event.stream, event.grant, event.progress, False))
    if held is not None and held.grant == event.grant:
        return said == (update(known, event.stream, held.grant, held.progress, held.finished),)
    return said == ()


def answers_revoke(known: BorrowerFacts, event: Revoke | Revoked, said: Said) -> bool:
    held = known.held.get(event.stream)
    if held is None or event.grant < held.grant:
        return said == (confirm_forgotten(known, event),)
    if isinstance(event, Revoked) or event.grant > held.grant:
        return said == (Tell(Uninstall(ID, event.stream, held.grant)), confirm_forgotten(known, event))
    answer = update(known, event.stream, held.grant, held.progress, held.finished)
    finish = () if held.finishing else (Tell(Finish(ID, event.stream, held.grant)),)
    return said == (*finish, answer)


def forgets_last(known: BorrowerFacts, event: Revoked, said: Said) -> bool:
    """While leaving: the last that was not finished is gone, and so is the borrower."""
    held = known.held.get(event.stream)
    if held is None or event.grant < held.grant or list_unfinished(known) != [event.stream]:
        return answers_revoke(known, event, said)
    first = (Tell(Uninstall(ID, event.stream, held.grant)), confirm_forgotten(known, event))
    return said == farewell(known, first, but=event.stream)


def passes_on(known: BorrowerFacts, event: StreamProgress, said: Said) -> bool:
    if not advances(known, event):
        return said == ()
    finished = is_final(known, event)
    first = (update(known, event.stream, event.grant, event.progress, finished),)
    if known.leaving and finished and list_unfinished(known) == [event.stream]:
        held = replace(known.held[event.stream], progress=event.progress, finished=True)
        return said == farewell(change_stream(known, event.stream, held), first)
    return said == first


def leaves(known: BorrowerFacts, event: OnUnsubscribe, said: Said) -> bool:
    if known.link is None:
        return said == (Tell(Destroyed(ID, False, SEEN)), Stop())
    if not list_unfinished(known):
        return said == farewell(known)
    return said == tuple(
        Tell(Finish(ID, stream, held.grant)) for stream, held in in_order(known.held) if not held.finishing
    )


def goes(known: BorrowerFacts, event: OnDisconnect, said: Said) -> bool:
    return said == ((Tell(Destroyed(ID, False, SEEN)), Stop()) if known.link is None else farewell(known))


def gives_back(known: BorrowerFacts, event: GiveBack, said: Said) -> bool:
    if known.leaving:
        return said == ()
    return said == ((Tell(Destroyed(ID, True, SEEN)), Stop()) if known.link is None else farewell(known, again=True))


def gives_up(known: BorrowerFacts, event: PingTimeout, said: Said) -> bool:
    return known.open and said == (farewell(known) if known.leaving else reset(known, 0))


def is_invalidated(known: BorrowerFacts, event: Invalidate, said: Said) -> bool:
    if known.leaving:
        return said == (*hand_back(known), Tell(Destroyed(ID, False, known.pair[0])), Stop())
    return said == reset(known, event.epoch)


def silence(known: Any, event: Any, said: Said) -> bool:
    return said == ()


def is_ours(known: BorrowerFacts, event: Any) -> bool:
    return known.link is not None and pair_of(event) == known.pair


def is_above(known: BorrowerFacts, event: Any) -> bool:
    return known.link is not None and pair_of(event) > known.pair


def is_none_of_ours(known: BorrowerFacts, event: Any) -> bool:
    """Of a leader of before; or, until it knows one, of anybody; or, once it leaves, of another."""
    if not isinstance(event, PAIRED):
        return isinstance(event, Undeclared)
    if known.link is None:
        return not isinstance(event, Invalidate) and not is_adopted(known, event)
    below = pair_of(event) < known.pair
    return below or (known.leaving and is_above(known, event) and not isinstance(event, Invalidate))


def is_adopted(known: BorrowerFacts, event: Any) -> bool:
    return known.link is None and isinstance(event, LeaderConnectResponse) and event.epoch >= SEEN


RULES: Final = (
    Rule("asks", "SS-02, SS-176", "who looks for a leader asks each registry in turn",
         lambda known, event: known.link is None and isinstance(event, Start | FindLeaderTimer), asks),
    Rule("adopts", "SS-03", "the first that leads under an epoch not below what was seen is pinged at once",
         is_adopted, pings_at_once),
    Rule("deaf", "SS-04, SS-24, SS-25", "what others say than its leader has no effect", is_none_of_ours, silence),
    Rule("follows", "SS-06, SS-15", "who hears of a higher pair begins anew from the highest epoch, and says nothing",
         lambda known, event: known.is_connected and isinstance(event, PAIRED) and not isinstance(event, Invalidate)
         and is_above(known, event), lambda known, event, said: said == reset(known, event.epoch)),
    Rule("invalidated", "SS-16, SS-22", "who is not known any more begins anew, or, if it was leaving, ends",
         lambda known, event: isinstance(event, Invalidate) and pair_of(event) >= known.pair, is_invalidated),
    Rule("repeated", "SS-24", "the same connect response again changes nothing",
         lambda known, event: isinstance(event, LeaderConnectResponse) and is_ours(known, event), silence),
    Rule("pings", "SS-07", "the next ping has the next number, and all that no answered one has reported",
         lambda known, event: isinstance(event, PingTimer), pings),
    Rule("lease", "SS-08", "the answer to the open ping, and no other, begins a lease that has ended",
         lambda known, event: isinstance(event, PingResponse) and is_ours(known, event), begins_lease),
    Rule("lease ends", "SS-10", "a lease that has begun ends, once",
         lambda known, event: isinstance(event, LeaseEnd),
         lambda known, event, said: known.leased and said == (Tell(LeaseEnded(ID)),)),
    Rule("gives up", "SS-09, SS-18", "who is not answered begins anew, or, if it was leaving, says so and ends",
         lambda known, event: isinstance(event, PingTimeout), gives_up),
    Rule("grant", "SS-30 to SS-32, SS-41", "a newer grant is installed in place of what is held; each is answered",
         lambda known, event: known.is_connected and isinstance(event, Grant) and is_ours(known, event), answers_grant),
    Rule("revoke", "SS-33 to SS-37", "what is taken back is finished or forgotten, and answered",
         lambda known, event: known.is_connected and isinstance(event, Revoke | Revoked) and is_ours(known, event),
         answers_revoke),
    Rule("late revoke", "SS-19, SS-20", "who is leaving forgets what is revoked, and ends with the last",
         lambda known, event: known.leaving and isinstance(event, Revoked) and is_ours(known, event), forgets_last),
    Rule("not begun", "SS-25", "who is leaving neither begins nor gives back anything else",
         lambda known, event: known.leaving and isinstance(event, Grant | Revoke) and is_ours(known, event), silence),
    Rule("progress", "SS-12, SS-19, SS-38, SS-42", "progress of what is held is sent on; with the last it ends",
         lambda known, event: isinstance(event, StreamProgress), passes_on),
    Rule("leaves", "SS-05, SS-13, SS-14, SS-39", "who leaves finishes what is held, and ends at once where nothing is",
         lambda known, event: isinstance(event, OnUnsubscribe) and not known.leaving, leaves),
    Rule("leaves once", "SS-25", "leaving again changes nothing",
         lambda known, event: isinstance(event, OnUnsubscribe) and known.leaving, silence),
    Rule("goes", "SS-05, SS-17", "who goes away says how far it has read, and ends",
         lambda known, event: isinstance(event, OnDisconnect), goes),
    Rule("gives back", "SS-292", "who cannot read says how far it has read, and ends to begin again",
         lambda known, event: isinstance(event, GiveBack), gives_back),
    Rule("in time", "SS-21", "who has not finished in time says how far it has read, and ends",
         lambda known, event: isinstance(event, UnsubscribeTimer), lambda known, event, said: said == farewell(known)),
)  # fmt: skip


# -- systems --------------------------------------------------------------------------------------------------------

TIMES: Final = Configuration()
ALPHABETS: Final = {
    "borrower-told": LeaderAlphabet(
        ((1, 2), (2, 1), (2, 2), (3, 1)), ("0.0/a",), progress=(), pings=1, idle=("pings",)
    ),
    "streams-told": LeaderAlphabet(((2, 1),), ("0.0/a",), grants=2, progress=(0, 1, END_OF_STREAM), idle=("follows",)),
    "two-streams-told": LeaderAlphabet(
        ((2, 1),), ("0.0/a", "0.0/b"), progress=(END_OF_STREAM,), takes=(), idle=("follows", "revoke", "late revoke")
    ),
}
ABOUT: Final = {
    "borrower-told": "a borrower among leaders of several epochs, who say anything",
    "streams-told": "a borrower whose leader grants a stream and takes it back in any order",
    "two-streams-told": "a borrower with two streams, which it reports, finishes and hands back",
}


def build(name: str) -> System:
    """A borrower, and everybody else."""
    return build_system(name, ABOUT[name], ALPHABETS[name])


def build_system(name: str, about: str, alphabet: LeaderAlphabet) -> System:
    """A borrower to whom all of the alphabet may be said."""
    record = BorrowerRecord(ID, GROUP, FILTER, REGISTRIES, TIMES, epoch=SEEN)
    machine = Machine(BORROWER, record, bound=lambda record: record.ping_n <= alphabet.pings)
    return contract(name, about, machine, Everybody(alphabet))

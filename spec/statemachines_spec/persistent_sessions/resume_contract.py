"""What the owner of a session owes the database, its client, writers and other owners, whatever it is told (PS-60 to
PS-72, PS-170 to PS-188)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Map, Send, Stop, Tell
from statemachines.persistent_sessions import message, request
from statemachines.persistent_sessions import resume_record as resume
from statemachines.persistent_sessions import takeover_record as over
from statemachines.persistent_sessions import takeover_record as takeover
from statemachines.persistent_sessions import writer_flow as flow
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.times import MS
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.persistent_sessions import writer_flow_contract as flows
from statemachines_spec.persistent_sessions.writer_flow_contract import OWNER, SESSION, TOKEN, WRITER, FlowFacts

CLIENT: Final = "client"
OLD: Final = f"{WRITER}~1/1"
"""The owner of before, on the node of the writer."""
NEXT: Final = (("next", CLIENT, TOKEN + 1), ("last", CLIENT, TOKEN + 2), ("older", CLIENT, TOKEN), ("next", "other", 9))
"""Owners that ask to take over: who, from which client, under which token."""
TICK_MS: Final = flows.TICK_MS
BEGIN, END, LIMIT, ORPHAN = 5, 7, 10, 13
"""Ticks until an old owner that does not begin, or end, is given up; until a resume is; until nobody came."""
TIMES: Final = replace(
    flows.TIMES, begin_ms=BEGIN * TICK_MS, end_ms=END * TICK_MS, resume_ms=LIMIT * TICK_MS, orphan_ms=ORPHAN * TICK_MS,
    lock_ms=ORPHAN * TICK_MS, handover=1,
)  # fmt: skip
LIVE: Final = tuple(message.Live(SESSION, WRITER, 1, flows.row(number)) for number in (1, 2))
ROWS: Final = tuple((request.EpochRows(WRITER, 1, (one.queued,)),) for one in LIVE)
BEFORE: Final = ("new", "load", "take", "read", "subscribe")
LIVE_PHASES: Final = ("sync", "normal")
RESUMING: Final = ("load", "take", "read", "subscribe", "sync")
FLOW: Final = flows.WriterAndSession(flows.FlowBounds(0, 0, 0, timed=True))
"""What the owner knows of the flow of its writer, and must say for it."""
OWNING: Final = ("read", "subscribe", *LIVE_PHASES)
Said = tuple[Any, ...]


class OwnerBounds(msgspec.Struct, frozen=True):
    """Sessions that may be loaded have a message of one of these `qos` (-1: none).  The session may be live elsewhere
    (`old`); there may be a writer, which is asked up to `questions` (0: there is none).  `timed`: these timers are.
    `alone`: the client and other owners say nothing."""

    qos: tuple[int, ...]
    old: bool
    questions: int
    timed: tuple[str, ...] = ()
    alone: bool = False


class OwnerFacts(msgspec.Struct, frozen=True, gc=False):
    """The `phase`: what the owner waits for.  It has loaded a message of `qos` (-1: none), of which so much is done
    (`delivery`).  It takes over from the `old` owner (`takeover`), which may be `silent`.  It follows a writer
    (`flow`), or yields to the owner with the token `claim`, and has `held` the row of this number for it (0: none).
    It resumes, or waits for the next owner, for so many ticks (`passed`); it `asked` the old owner, and `began` to wait
    for it, so many ticks ago."""

    phase: str = "new"
    loaded: bool = False
    qos: int = -1
    delivery: str = ""
    old: bool = False
    takeover: str = ""
    silent: bool = False
    flow: FlowFacts | None = None
    claim: int = 0
    held: int = 0
    passed: int = 0
    asked: int = 0
    began: int = 0

    @property
    def session(self) -> str:
        """Its name, once it is loaded."""
        return SESSION if self.loaded else ""

    @property
    def is_committed(self) -> bool:
        """No commit is open."""
        return self.delivery not in ("commit", "receive")

    @property
    def is_synchronised(self) -> bool:
        """Nothing is waited for before the session is in normal operation."""
        return self.is_committed and (self.flow is None or self.flow.phase == "done")


class OwnersAndDatabase(Counterpart):
    """a client, a writer, other owners and a database that say anything at any time, also what nobody waits for"""

    owes, ends = "OWES", "OWES an end"

    def __init__(self, bounds: OwnerBounds, idle: tuple[str, ...]) -> None:
        super().__init__(list_rules(bounds.timed), idle)
        self.said_within = bounds

    def begins(self) -> OwnerFacts:
        return OwnerFacts(old=self.said_within.old)

    def says(self, known: OwnerFacts) -> Iterator[Any]:
        if known.phase == "stopped":
            return
        if known.phase == "new":
            yield resume.ResumeSession()
        yield from (request.SessionLoaded(SESSION, make_state(qos)) for qos in self.said_within.qos)
        yield from (request.PendingRead(()), request.SubscribedLive(()))
        if self.said_within.questions:
            yield from say_of_writer(known)
        if self.said_within.alone and known.flow is not None:
            yield message.Live(SESSION, WRITER, known.flow.epoch, flows.row(known.flow.taken + 2))
        if self.said_within.old:
            yield from say_of_takeover()
        if not self.said_within.alone:
            yield from say_of_others()
        if known.phase == "yield":
            yield from LIVE
        late = (one for one in LATE if not self.said_within.alone or TIMERS.get(type(one)) in self.said_within.timed)
        yield from (one for one in late if read_clock(known, one) is None)

    def learns(self, known: OwnerFacts, event: Any, said: Said) -> OwnerFacts:
        return expect(known, event)[0]

    def ages(self, known: OwnerFacts, ticks: int) -> OwnerFacts:
        if known.flow is not None:
            known = replace(known, flow=FLOW.ages(known.flow, ticks))
        return replace(
            known,
            passed=min(known.passed + ticks, ORPHAN + 1) if known.phase in (*RESUMING, "yield") else 0,
            asked=min(known.asked + ticks, flows.REPEAT + 1) if known.takeover in ("begin", "end") else 0,
            began=min(known.began + ticks, END + 1) if known.takeover in ("begin", "end", "confirm") else 0,
        )

    def is_late(self, known: OwnerFacts) -> int:
        for event in LATE:
            clock = read_clock(known, event)
            if TIMERS.get(type(event)) in self.said_within.timed and clock is not None and clock[0] > clock[1]:
                return NAMES.index("keeps time") + 1
        return 0


TIMERS: Final[dict[type[Any], str]] = {
    resume.ResumeTimeout: "resume", resume.OrphanTimeout: "orphan", takeover.SayAgain: "again",
    takeover.BeginTimeout: "begin", takeover.EndTimeout: "end", flow.AskAgain: "repeat", flow.PollDue: "poll",
    flow.MarkerTimeout: "marker",
}  # fmt: skip
LATE: Final = (
    *(kind(OLD) for kind in (takeover.SayAgain, takeover.BeginTimeout, takeover.EndTimeout)),
    *(kind(WRITER) for kind in (flow.AskAgain, flow.PollDue, flow.MarkerTimeout)),
    *(kind("") for kind in (resume.ResumeTimeout, resume.OrphanTimeout, resume.Lull, resume.CatchUpDue)),
)


def read_clock(known: OwnerFacts, event: Any) -> tuple[int, int] | None:
    """For how many ticks the timer that fires so is set, and for how many it is to be (None: it is not set)."""
    followed = known.flow or FLOW.facts
    clocks: dict[type[Any], tuple[bool, int, int]] = {
        resume.ResumeTimeout: (known.phase in RESUMING, known.passed, LIMIT),
        resume.OrphanTimeout: (known.phase == "yield", known.passed, ORPHAN),
        takeover.SayAgain: (known.takeover in ("begin", "end"), known.asked, flows.REPEAT),
        takeover.BeginTimeout: (known.takeover == "begin", known.began, BEGIN),
        takeover.EndTimeout: (known.takeover in ("end", "confirm"), known.began, END),
        flow.AskAgain: (followed.phase == "wait", followed.passed[0], flows.REPEAT),
        flow.PollDue: (followed.phase == "look", followed.passed[2], flows.POLL),
        flow.MarkerTimeout: (followed.phase in ("wait", "sync", "look"), followed.passed[1], flows.PATIENCE),
    }
    is_set, passed, ticks = clocks.get(type(event), (False, 0, 0))
    return (passed, ticks) if is_set else None


def make_state(qos: int) -> request.SessionState:
    """A state in which the rows of the writer up to 1 are taken, and perhaps a message is queued."""
    queued = (message.Queued(1, "message", "filter", qos),) if qos >= 0 else ()
    return request.SessionState(Map({WRITER: (1, 1)}), queued=queued)


def say_of_others() -> Iterator[Any]:
    """What the client, the next owners, and the database say."""
    yield from (resume.ConnectionLost(), resume.Discarded(), request.NotOwner(), request.SessionAbsent())
    yield from (request.StateCommitted(), message.Puback(1), message.Pubrec(1), message.Pubcomp(1))
    for to, client, token in NEXT:
        yield from (over.BeginTakeover(client, to, token), over.EndTakeover(client, to, token))


def say_of_takeover() -> Iterator[Any]:
    """What the old owner, and the database, say of a takeover."""
    for token in (TOKEN - 1, TOKEN):
        yield from (over.TakeoverBegun(CLIENT, token), over.TakeoverRefused(CLIENT, token))
    yield over.TakeoverRefused(CLIENT, TOKEN, is_gone=True)
    yield from (over.TakeoverEnded(CLIENT, TOKEN, found) for found in ((), ROWS[0]))
    yield request.RowsConfirmed(())


def say_of_writer(known: OwnerFacts) -> Iterator[Any]:
    """What the writer, its node, and the database say of it."""
    followed = known.flow or FlowFacts(taken=1)
    yield from (request.SubscribedLive((WRITER,)), request.SubscribedLive((), (WRITER,)))
    yield from (LIVE[0], request.Polled(WRITER, ()))
    yield from (flow.WriterUp(WRITER), flow.WriterDown(WRITER), flow.LinkLost(WRITER))
    for n in {max(1, followed.n - 1), max(1, followed.n)}:
        marked = request.EpochRows(WRITER, followed.epoch, (), ((TOKEN, n),))
        yield message.LiveMarker(SESSION, WRITER, followed.epoch, followed.taken + 1, TOKEN, n)
        yield from (request.Polled(WRITER, (marked,)), request.FencedRows(WRITER, followed.epoch + 1, n, ()))


# -- what it must say, and what is known then -----------------------------------------------------------------------

Next = tuple[OwnerFacts, Said]


def ask(asked: Any) -> Said:
    return (Ask(request.DATABASE, asked),)


COMMIT: Final = ask(request.CommitState(SESSION, TOKEN, request.StateChange()))
LOAD: Final = ask(request.LoadSession(CLIENT, OWNER, TOKEN))
SUBSCRIBE: Final = ask(request.SubscribeLive(SESSION, OWNER, TOKEN))
RESUMED: Final = (Tell(resume.Resumed(SESSION)),)


def stop(known: OwnerFacts, why: str, said: Said = ()) -> Next:
    ended = (Tell(resume.ResumeEnded(known.session, why)), Stop())
    return OwnerFacts("stopped"), (*ask(request.UnsubscribeLive(known.session, TOKEN)), *said, *ended)


def ask_old(known: OwnerFacts) -> Said:
    """The question that the old owner has not answered."""
    kind = over.BeginTakeover if known.takeover == "begin" else over.EndTakeover
    return (Send(OLD, kind(CLIENT, OWNER, TOKEN)),)


def tell_over(why: str) -> Said:
    return (Tell(takeover.TakenOver(SESSION, OLD, why)),)


def deliver(known: OwnerFacts, event: Any) -> Next:
    """What becomes of the message: it is committed, sent, received and released, each at its time."""
    match known.delivery, event:
        case "queued", None:
            return replace(known, delivery="commit"), COMMIT
        case "commit", request.StateCommitted():
            sent = message.Publish(1, "message", "filter", known.qos, False)
            return replace(known, delivery="sent"), (Send(CLIENT, sent),)
        case "sent", message.Pubrec() if known.qos == 2:
            return replace(known, delivery="receive"), COMMIT
        case ("receive", request.StateCommitted()) | ("released", message.Pubrec()):
            return replace(known, delivery="released"), (Send(CLIENT, message.Pubrel(1)),)
        case ("sent", message.Puback()) if known.qos == 1:
            return replace(known, delivery=""), ()
        case ("released", message.Pubcomp()):
            return replace(known, delivery=""), ()
    return known, ()


def hear_database(known: OwnerFacts, event: Any) -> Next:
    """What the database answers while the session is resumed."""
    match known.phase, event:
        case "load", request.SessionAbsent():
            return OwnerFacts("stopped"), (Tell(resume.ResumeEnded("", "absent")), Stop())
        case "load", request.SessionLoaded(state=state):
            qos = state.queued[0].qos if state.queued else -1
            delivery = "queued" if state.queued else ""
            known = replace(known, loaded=True, qos=qos, delivery=delivery)
            if known.old:
                known = replace(known, phase="take", takeover="begin", asked=0, began=0)
                return known, ask_old(known)
            known, committed = deliver(replace(known, phase="read"), None)
            return known, (*committed, *ask(request.ReadPending(SESSION, rows=flows.PAGE)))
        case "read", request.PendingRead():
            return replace(known, phase="subscribe"), SUBSCRIBE
        case "subscribe", request.SubscribedLive(writers, gone):
            return begin_flows(known, (*writers, *gone), bool(gone))
    return known, ()


def begin_flows(known: OwnerFacts, writers: tuple[str, ...], is_gone: bool) -> Next:
    """The old owner is asked to end, and writers are asked for their markers; those that are dead are fenced."""
    said: Said = ()
    if known.takeover:
        known, said = deliver(replace(known, takeover="end", asked=0, began=0), None)
        said = (*said, *ask_old(known))
    if not writers and known.is_committed:
        return replace(known, phase="normal"), (*said, *RESUMED)
    known = replace(known, phase="sync")
    if writers:
        known, asked = hear_writer(known, flow.WriterUp(WRITER))
        said = (*said, *asked)
        if is_gone or known.silent:
            known, asked = hear_writer(known, flow.WriterDown(WRITER))
            said = (*said, *asked)
    return replace(known, silent=False), said


def follow(followed: FlowFacts, event: Any) -> tuple[FlowFacts, Said]:
    """What is known of the flow of a writer with this event, and what the owner must say for it."""
    return FLOW.learns(followed, event, ()), FLOW.expect(followed, event)[1]


def hear_writer(known: OwnerFacts, event: Any) -> Next:
    """One that nothing was known of is asked for its marker first."""
    said: Said = ()
    followed = known.flow
    if followed is None:
        if not isinstance(event, message.Live | flow.WriterUp | flow.WriterDown | flow.LinkLost):
            return known, ()
        followed, said = follow(FlowFacts(passed=FLOW.facts.passed, taken=1), flow.Begin())
        if not isinstance(event, flow.WriterDown):
            return replace(known, flow=followed), said
    followed, more = follow(followed, event)
    return replace(known, flow=followed), (*said, *more)


def go_on(known: OwnerFacts, event: Any, said: Said) -> Next:
    """A flow that waits for a commit is done with it; then the session may be in normal operation."""
    if known.flow is not None and known.flow.phase == "final" and known.is_committed:
        known = replace(known, flow=follow(known.flow, flow.Settled())[0])
    ends = isinstance(event, request.StateCommitted) or known.flow is not None
    if known.phase == "sync" and ends and known.is_synchronised:
        return replace(known, phase="normal"), (*said, *RESUMED)
    return known, said


def hear_old(known: OwnerFacts, event: Any) -> Next:
    """What the old owner says, and that it says nothing."""
    is_ours = getattr(event, "token", TOKEN) == TOKEN
    match known.takeover, event:
        case (("begin" | "end"), takeover.SayAgain()):
            return replace(known, asked=0), ask_old(known)
        case "begin", over.TakeoverBegun() if is_ours:
            return replace(known, phase="subscribe", takeover="begun"), SUBSCRIBE
        case "begin", over.TakeoverRefused() if is_ours:
            known = OwnerFacts("load", silent=event.is_gone, passed=known.passed)
            return known, (*tell_over("refused"), *LOAD)
        case "begin", takeover.BeginTimeout():
            return OwnerFacts("load", silent=True, passed=known.passed), (*tell_over("silent"), *LOAD)
        case "end", over.TakeoverEnded(_, _, found) if found:
            return replace(known, takeover="confirm"), ask(request.ConfirmRows(SESSION, TOKEN, found))
        case ("end", over.TakeoverEnded()) | ("confirm", request.RowsConfirmed()):
            return replace(known, takeover=""), tell_over("handed")
        case "end", over.TakeoverRefused() if is_ours:
            return replace(known, takeover=""), tell_over("refused")
        case (("end" | "confirm"), takeover.EndTimeout()):
            return replace(known, takeover=""), tell_over("silent")
    return known, ()


def hear_next(known: OwnerFacts, event: over.BeginTakeover | over.EndTakeover) -> Next:
    """An owner that comes after this one takes over; others are refused."""
    comes_after = event.client == CLIENT and event.token > max(TOKEN, known.claim)
    has_claimed = event.client == CLIENT and event.token == known.claim
    is_begin = isinstance(event, over.BeginTakeover)
    if is_begin and (has_claimed or (comes_after and known.phase != "new")):
        begun = (Send(event.to, over.TakeoverBegun(CLIENT, event.token)),)
        return (known, begun) if has_claimed else give_way(known, event.token, begun)
    if not is_begin and has_claimed:
        held = ROWS[known.held - 1] if known.held else ()
        return stop(known, "taken over", (Send(event.to, over.TakeoverEnded(CLIENT, event.token, held)),))
    return known, (Send(event.to, over.TakeoverRefused(event.client, event.token)),)


def give_way(known: OwnerFacts, claim: int, begun: Said) -> Next:
    """It falls silent, unless it was before."""
    told = () if known.phase == "yield" else (Tell(resume.Yielded(known.session)),)
    yielding = OwnerFacts("yield", known.loaded, claim=claim, held=known.held)
    return yielding, (*told, *begun)


def hear_end(known: OwnerFacts, event: Any) -> Next:
    """What ends its part in the session."""
    match event:
        case resume.Discarded():
            return stop(known, "discarded")
        case resume.ConnectionLost() if known.phase != "yield":
            return stop(known, "lost")
        case resume.ResumeTimeout() if known.phase in RESUMING:
            return stop(known, "timeout")
        case resume.OrphanTimeout() if known.phase == "yield":
            return stop(known, "orphaned")
        case request.NotOwner() if known.phase in BEFORE:
            return stop(known, "superseded")
        case request.NotOwner() if known.phase in LIVE_PHASES:
            return give_way(known, 0, ())
    return known, ()


OF_OLD: Final = (
    over.TakeoverBegun, over.TakeoverEnded, over.TakeoverRefused, request.RowsConfirmed, takeover.SayAgain,
    takeover.BeginTimeout, takeover.EndTimeout,
)  # fmt: skip
OF_WRITER: Final = (
    message.Live, message.LiveMarker, request.Polled, request.FencedRows, flow.WriterUp, flow.WriterDown, flow.LinkLost,
    flow.AskAgain, flow.PollDue, flow.MarkerTimeout,
)  # fmt: skip
OF_DELIVERY: Final = (request.StateCommitted, message.Puback, message.Pubrec, message.Pubcomp)
OF_END: Final = (
    resume.Discarded, resume.ConnectionLost, request.NotOwner, resume.ResumeTimeout, resume.OrphanTimeout, resume.Lull,
    resume.CatchUpDue,
)  # fmt: skip
OF_DATABASE: Final = (request.SessionAbsent, request.SessionLoaded, request.PendingRead, request.SubscribedLive)
OF_NEXT: Final = (over.BeginTakeover, over.EndTakeover)


def expect(known: OwnerFacts, event: Any) -> Next:
    """What is known when the owner has taken the event, and what it must have said."""
    if isinstance(event, resume.ResumeSession):
        return replace(known, phase="load", passed=0), LOAD
    if isinstance(event, OF_END):
        return hear_end(known, event)
    if isinstance(event, OF_NEXT):
        return hear_next(known, event)
    if isinstance(event, OF_OLD):
        return hear_old(known, event)
    if isinstance(event, OF_DELIVERY) and known.phase in OWNING:
        known, said = deliver(known, event)
        return go_on(known, event, said)
    if isinstance(event, OF_WRITER) and known.phase in LIVE_PHASES:
        known, said = hear_writer(known, event)
        return go_on(known, event, said)
    if isinstance(event, message.Live) and known.phase == "yield":
        return replace(known, held=known.held or event.number), ()
    return hear_database(known, event)


def forget_changes(said: Said) -> Said:
    """The same, whatever a commit changes: that is not judged here."""
    return tuple(
        COMMIT[0]
        if isinstance(one, Ask) and isinstance(one.request, request.CommitState)
        and (one.request.session, one.request.token) == (SESSION, TOKEN)
        else one
        for one in said
    )  # fmt: skip


def rule(name: str, clause: str, text: str, *kinds: type[Any]) -> Rule:
    """The rule that binds the owner when it is told something of these kinds."""
    return Rule(name, clause, text, lambda known, event: isinstance(event, kinds),
                lambda known, event, said: forget_changes(said) == expect(known, event)[1])  # fmt: skip


def list_rules(timed: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules of an owner; these timers are timed."""

    def keeps_time(known: OwnerFacts, event: Any, said: Said) -> bool:
        passed, ticks = read_clock(known, event) or (0, 0)
        return TIMERS[type(event)] not in timed or passed == ticks

    return (
        rule("loads", "PS-60 to PS-64, PS-72", "it loads the session, reads what is pending, subscribes, asks writers",
             resume.ResumeSession, *OF_DATABASE),
        rule("delivers", "PS-65, PS-66, PS-68", "it commits, sends and releases the message of its client",
             *OF_DELIVERY),
        rule("follows a writer", "PS-65 to PS-67", "it synchronises with a writer, also with one that is new",
             *OF_WRITER),
        rule("takes over", "PS-170 to PS-179", "it takes over from the old owner, or resumes without it", *OF_OLD),
        rule("yields", "PS-180, PS-183, PS-184, PS-186", "it yields to the next owner, and refuses others", *OF_NEXT),
        rule("ends", "PS-69 to PS-71, PS-181, PS-185", "it ends when it is told to, or is late", *OF_END),
        Rule("keeps time", "PS-69, PS-171, PS-173, PS-178, PS-185", "no timer fires before its time, or after it",
             lambda known, event: read_clock(known, event) is not None, keeps_time),
    )  # fmt: skip


NAMES: Final = tuple(one.name for one in list_rules(()))

OF_OWNER: Final = ("resume", "orphan", "again", "begin", "end")
OF_FLOW: Final = ("repeat", "poll", "marker")
SYSTEMS: Final[dict[str, tuple[str, OwnerBounds]]] = {
    "resume-told": (
        "what the owner of a session owes the database, its client and others",
        OwnerBounds((-1,), False, 2),
    ),
    "resume-delivers": ("the same, while a message is delivered", OwnerBounds((1, 2), False, 2)),
    "resume-takes-over": ("the same, while it takes over from an old owner", OwnerBounds((-1, 1), True, 1)),
    "resume-timed": ("the same, while time passes", OwnerBounds((-1,), True, 0, OF_OWNER)),
    "resume-follows-in-time": (
        "the same, while time passes for its writer",
        OwnerBounds((-1,), False, 2, OF_FLOW, True),
    ),
}
"""Name -> (about, what may be said)."""


def system(name: str) -> System:
    """The system called so."""
    about, bounds = SYSTEMS[name]
    record = resume.ResumeRecord(OWNER, CLIENT, TOKEN, TIMES, old=OLD if bounds.old else "")
    machine = Machine(
        RESUME,
        record,
        timing=Timing(TICK_MS * MS, bounds.timed) if bounds.timed else None,
        bound=lambda record: all(one.n <= bounds.questions and one.epoch <= 2 for one in record.flows.values()),
        says_so=False,
    )
    clock = (TickClock(TICK_MS * MS),) if bounds.timed else ()
    idle = ("delivers", "takes over", "yields", "ends") if bounds.alone else ()
    return contract(name, about, machine, OwnersAndDatabase(bounds, idle), *clock)

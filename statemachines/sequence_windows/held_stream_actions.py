"""What an event makes of a held stream: the guards and actions of its table (`held_stream`)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, ChildStep, Effect, Effects, Event, Tell
from statemachines.missed_samples.message import QUERY, Deliver, Heartbeat, Query, QueryEnded, Sample
from statemachines.missed_samples.ranges import overlap
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_actions import settle_below
from statemachines.missed_samples.source_record import LIVE, QueryTimeout, Rested, SourceRecord
from statemachines.sequence_windows.held_stream_record import (
    BeginRun,
    DropStream,
    HeldRun,
    HeldStreamRecord,
    MessageHeld,
    MessagePassed,
    MessageRepeated,
    MessagesReleased,
    NextRun,
    NoRoom,
    PutQuery,
    QueryDue,
    RecoveredMessage,
    RefuseRun,
    ReleasedRange,
    ReplyRepeated,
    ReplyUnexpected,
    RunSettled,
    RunWanted,
    StreamGivenUp,
    StreamMessage,
)
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Verdict
from statemachines.sequence_windows.sequence import frame_of

Done = tuple[HeldStreamRecord, Effects]
Delegated = tuple[HeldStreamRecord, Effects, tuple[ChildStep, ...]]


def begin_stream(stream: str, recovery: Recovery, first: int) -> HeldStreamRecord:
    """With its first run: everything before this number has been handed over, or is of no interest."""
    return HeldStreamRecord(stream, recovery, (make_run(stream, recovery, 1, first),), 1)


def make_run(stream: str, recovery: Recovery, n: int, first: int, own: bool = False) -> HeldRun:
    """Run `n` of the stream, in which nothing is missing yet."""
    return HeldRun(first, SourceRecord(f"{stream}.{n}", recovery, LIVE, first, first, heard=True), own)


def judge_released(told: Judged, filled: bool, lost: int, own: bool) -> Judged:
    """What a message is when it is released: `lost` numbers before it will not come, and all others have.  `told`: what
    it was by itself; `filled`: it was missing; `own`: the loss that its window told counts as well."""
    lost = min(lost + told.lost, LOSS_MAX) if own else min(lost, LOSS_MAX)
    begins = told.verdict in (Verdict.FIRST, Verdict.CYCLE) and not filled
    verdict = Verdict.SKIP if lost else told.verdict if begins else Verdict.NEXT
    return Judged(verdict, told.frame, told.first, told.last, lost, own and told.unknown)


# -- guards ---------------------------------------------------------------------------------------------------------


def fills_hole(record: HeldStreamRecord, event: StreamMessage | RecoveredMessage) -> bool:
    """It is known to exist, and has not come."""
    number = event.number
    place = record.place_of_number(number)
    if place < 0:
        return False
    source = record.runs[place].source
    return source.expected <= number and not overlap(source.held, number, number)


def is_known(record: HeldStreamRecord, event: StreamMessage) -> bool:
    return event.number <= record.runs[-1].high


def is_of_newest_run(record: HeldStreamRecord, event: StreamMessage) -> bool:
    return frame_of(event.number) == record.frame


def is_of_run(record: HeldStreamRecord, event: RecoveredMessage) -> bool:
    return record.place_of_number(event.number) >= 0


def shows_tail(record: HeldStreamRecord, event: BeginRun) -> bool:
    """The stream before it went on behind the last number that is known of it."""
    return follows(record, event) and event.before > record.runs[-1].high


def follows(record: HeldStreamRecord, event: BeginRun) -> bool:
    """It says where the stream before it ended, and that is the newest run."""
    return frame_of(event.before) == record.frame


def is_still_missed(record: HeldStreamRecord, event: PutQuery) -> bool:
    """Nothing that has come meanwhile has answered the query."""
    place = record.place_of_name(event.run)
    if place < 0:
        return False
    run = record.runs[place]
    return run.source.missing > 0 and any(one.n == run.due for one in run.source.windows)


def is_about_run(record: HeldStreamRecord, event: QueryEnded) -> bool:
    return record.place_of_name(event.source) >= 0


def is_timer_of_run(record: HeldStreamRecord, event: QueryTimeout | Rested) -> bool:
    return record.place_of_name(event.key) >= 0


# -- runs -----------------------------------------------------------------------------------------------------------


def absorb(run: HeldRun, effects: Effects, *, oldest: bool) -> tuple[HeldRun, Effects]:
    """The run with what its source says of messages, and everything else that the source wants.  What the oldest run
    says is handed over."""
    released, lost, due = run.released, run.lost, run.due
    left: list[Effect] = []
    for effect in effects:
        if type(effect) is Tell:
            told = effect.event
            first, last = told.first, told.last  # type: ignore[attr-defined]
            if type(told) is not Deliver:
                lost += last - first + 1
                continue
            if oldest:
                left.append(Tell(MessagesReleased(first, last, lost, run.own and first == run.first)))
            elif released and not lost:  # it follows the last one, since all between them is lost or released
                released = (*released[:-1], ReleasedRange(released[-1].first, last, released[-1].lost))
            else:
                released = (*released, ReleasedRange(first, last, lost))
            lost = 0
        elif type(effect) is Ask:
            due = effect.request.n  # type: ignore[attr-defined]
            left.append(Tell(QueryDue(run.name)))
        else:
            left.append(effect)
    return HeldRun(run.first, run.source, run.own, released, lost, due), tuple(left)


def release(run: HeldRun, lost: int) -> tuple[HeldRun, Effects]:
    """Hand over what can be of the oldest run; `lost` of the runs before it has not been told yet."""
    effects = []
    for one in run.released:
        own = run.own and one.first == run.first
        effects.append(Tell(MessagesReleased(one.first, one.last, lost + one.lost, own)))
        lost = 0
    return replace(run, released=(), lost=lost + run.lost), tuple(effects)


def step_run(record: HeldStreamRecord, place: int, event: Event, now_ns: int) -> Delegated:
    """One step of a run; what the oldest one says is handed over."""
    run = record.runs[place]
    source, effects, seen = SOURCE.child_step(run.source, event, now_ns)
    run = HeldRun(run.first, source, run.own, run.released, run.lost, run.due)
    if effects:
        run, effects = absorb(run, effects, oldest=place == 0)
    if place == 0 and source.status is LIVE:
        effects = (*effects, Tell(RunSettled(record.stream, 1, len(record.runs) - 1)))
    runs = (*record.runs[:place], run, *record.runs[place + 1 :])
    return replace(record, runs=runs), effects, (seen,)


def hold(record: HeldStreamRecord, place: int, number: int, filled: bool, now_ns: int) -> Delegated:
    """The run takes a number that it misses, or that is ahead of it."""
    sample = Sample(record.runs[place].name, number, number)
    record, effects, seen = step_run(record, place, sample, now_ns)
    return record, (Tell(MessageHeld(number, filled)), *effects), seen


# -- actions --------------------------------------------------------------------------------------------------------


def fill(record: HeldStreamRecord, event: StreamMessage | RecoveredMessage, now_ns: int) -> Delegated:
    return hold(record, record.place_of_number(event.number), event.number, True, now_ns)


def append(record: HeldStreamRecord, event: StreamMessage, now_ns: int) -> Delegated:
    return hold(record, len(record.runs) - 1, event.number, False, now_ns)


def tell_repeated(record: HeldStreamRecord, event: StreamMessage, now_ns: int) -> Done:
    return record, (Tell(MessageRepeated(event.number)),)


def want_run(record: HeldStreamRecord, event: StreamMessage, now_ns: int) -> Done:
    return record, (Tell(RunWanted(record.stream, event.number, event.before)),)


def begin_after_tail(record: HeldStreamRecord, event: BeginRun, now_ns: int) -> Delegated:
    """The newest run hears how far it goes, and another one begins."""
    newest = len(record.runs) - 1
    heartbeat = Heartbeat(record.runs[newest].name, event.before)
    record, effects, seen = step_run(record, newest, heartbeat, now_ns)
    record, more, also = begin_run(record, event.number, False, now_ns)
    return record, (*effects, *more), (*seen, *also)


def begin_next(record: HeldStreamRecord, event: BeginRun, now_ns: int) -> Delegated:
    """What is missing before it the newest run knows."""
    return begin_run(record, event.number, False, now_ns)


def begin_apart(record: HeldStreamRecord, event: BeginRun, now_ns: int) -> Delegated:
    """What is missing before it the window alone knows."""
    return begin_run(record, event.number, True, now_ns)


def begin_run(record: HeldStreamRecord, number: int, own: bool, now_ns: int) -> Delegated:
    begun = record.begun + 1
    run = make_run(record.stream, record.recovery, begun, number, own)
    record = replace(record, runs=(*record.runs, run), begun=begun)
    return hold(record, len(record.runs) - 1, number, False, now_ns)


def tell_reply_repeated(record: HeldStreamRecord, event: RecoveredMessage, now_ns: int) -> Done:
    return record, (Tell(ReplyRepeated()),)


def tell_reply_unexpected(record: HeldStreamRecord, event: RecoveredMessage, now_ns: int) -> Done:
    return record, (Tell(ReplyUnexpected()),)


def put_query(record: HeldStreamRecord, event: PutQuery, now_ns: int) -> Done:
    """Up to the highest number that is missing; once."""
    place = record.place_of_name(event.run)
    run = record.runs[place]
    window = next(one for one in run.source.windows if one.n == run.due)
    last = min(window.last, run.missing_until)
    record = replace(record, runs=(*record.runs[:place], replace(run, due=0), *record.runs[place + 1 :]))
    return record, (Ask(QUERY, Query(run.name, window.n, window.first, last=last)),)


def end_query(record: HeldStreamRecord, event: QueryEnded, now_ns: int) -> Delegated:
    return step_run(record, record.place_of_name(event.source), event, now_ns)


def fire_run(record: HeldStreamRecord, event: QueryTimeout | Rested, now_ns: int) -> Delegated:
    return step_run(record, record.place_of_name(event.key), event, now_ns)


def release_next(record: HeldStreamRecord, event: NextRun, now_ns: int) -> Done:
    """What the next run has said by now is handed over; what the oldest one lost last counts before it."""
    over, run, *others = record.runs
    run, effects = release(run, over.lost)
    if run.source.status is LIVE:
        effects = (*effects, Tell(RunSettled(record.stream, 1, len(others))))
    return replace(record, runs=(run, *others)), effects


def give_up(record: HeldStreamRecord, event: NoRoom | RefuseRun, now_ns: int) -> Done:
    """Of every run what is missing will not come, and the rest is handed over."""
    effects: list[Effect] = [Tell(StreamGivenUp())]
    lost = 0
    for run in record.runs:
        _, told = settle_below(run.source, run.source.top)
        run, more = release(absorb(run, told, oldest=False)[0], lost)
        effects += more
        lost = run.lost
    return record, (*effects, *drop(record, event, now_ns)[1])


def refuse_run(record: HeldStreamRecord, event: RefuseRun, now_ns: int) -> Done:
    """The message follows everything that is handed over because of it."""
    record, effects = give_up(record, event, now_ns)
    return record, (*effects, Tell(MessagePassed(event.number)))


def drop(record: HeldStreamRecord, event: DropStream | NoRoom | RefuseRun, now_ns: int) -> Done:
    """Every run is over."""
    return record, (Tell(RunSettled(record.stream, len(record.runs), 0)),)

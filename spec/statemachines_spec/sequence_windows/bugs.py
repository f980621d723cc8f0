"""Bugs: mistakes that can be planted in the machines of sequence windows; each is found by exploring."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import STAY, Event, Fsm, Row, Tell
from statemachines.kernel.row import AnyRow
from statemachines.sequence_windows import loss_notifier, publisher_window, subject_publishers, subscriber_window
from statemachines.sequence_windows.inbox_window import INBOX_WINDOW
from statemachines.sequence_windows.late_join import LATE_JOIN, tell_verified
from statemachines.sequence_windows.loss_notifier import LOSS_NOTIFIER, NotifierStatus, SecondOver, with_losses
from statemachines.sequence_windows.message import Numbered, Verdict
from statemachines.sequence_windows.publisher_window import (
    PUBLISHER_WINDOW,
    Flip,
    Publish,
    PublisherWindowRecord,
    Stamped,
    frame_for,
)
from statemachines.sequence_windows.rotation import ROTATION
from statemachines.sequence_windows.sequence import BASE_MAX, base_of, frame_at, frame_of, number_of
from statemachines.sequence_windows.subject_publishers import (
    SUBJECT_PUBLISHERS,
    Displaced,
    SubjectPublishersStatus,
)
from statemachines.sequence_windows.subscriber_window import (
    FRESH,
    OLD,
    SUBSCRIBER_WINDOW,
    Subscribe,
    SubscriberWindowStatus,
    Touched,
    Unsubscribe,
    advance_window,
    tell_verdict,
)
from statemachines_spec.bug import Apply, Bug, change_rows, combine, redeclare, replace_call

KNOWN = SubscriberWindowStatus.CURRENT


def always(record: Any, event: Event) -> bool:
    return True


def never(record: Any, event: Event) -> bool:
    return False


def on(fsm: Fsm[Any], event: type[Event], source: Any, to: Any, do: Any = None) -> Apply:
    """The row of this event in `source` leads elsewhere, and does this."""

    def changed(one: AnyRow) -> list[AnyRow]:
        if not isinstance(one, Row) or one.on is not event or source not in fsm._sources(one.source):
            return [one]
        return [Row(one.on, one.source, to, do, one.when, one.clause)]

    return lambda stack: redeclare(stack, fsm, changed)


# -- what is done instead -------------------------------------------------------------------------------------------


def frame_of_now(record: Any, event: Any) -> int:
    return frame_at(event.t_ns)


def frame_without_its_own(record: Any, event: Publish) -> int:
    return max(frame_at(event.t_ns), event.floor, frame_at(event.converged_ns))


def nothing_before(event: Any) -> int:
    """No number of ours: as if the stream before were one that nobody knows."""
    return 1 if event.chain else 0


def only_converged(record: PublisherWindowRecord, event: Publish) -> bool:
    return frame_of(record.last) < frame_at(event.converged_ns)


def restart_in_silence(record: Any, event: Any, now_ns: int) -> Any:
    return publisher_window.new_stream(record, event, 0)


def chain_of_the_next(record: Any, event: Any, now_ns: int) -> Any:
    return publisher_window.new_stream(record, event, record.last + 1)


def same_again(record: Any, event: Any, now_ns: int) -> Any:
    frame, base = frame_of(record.last), base_of(record.last)
    return record, (Tell(Stamped(frame, base, base)),)


def every_other(record: Any, event: Any, now_ns: int) -> Any:
    frame, base = frame_of(record.last), min(base_of(record.last) + 2, BASE_MAX)
    return replace(record, last=number_of(frame, base)), (Tell(Stamped(frame, base, base)),)


def flip_without_floor(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, flipped_ns=event.at_ns, flips=record.flips + 1), (Tell(Flip(event.old_frame + 1)),)


def is_below(record: Any, event: Any) -> bool:
    return bool(event.end < record.last)


def one_more(record: Any, event: Any, now_ns: int) -> Any:
    return advance_window(record, event), (tell_verdict(Verdict.SKIP, event, lost=event.number - record.last),)


def one_less(record: Any, event: Any, now_ns: int) -> Any:
    return advance_window(record, event), (tell_verdict(Verdict.SKIP, event, lost=event.before - record.last - 1),)


def is_after_another(record: Any, event: Any) -> bool:
    return bool(event.before != 0)


def is_not_the_first(record: Any, event: Any) -> bool:
    return bool(event.first != 1)


def tell_at_most_one(verdict: Verdict, event: Numbered, *, lost: int = 0, **more: Any) -> Tell:
    return tell_verdict(verdict, event, lost=min(lost, 1), **more)


def move_back(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, last=event.end), (tell_verdict(Verdict.REPEAT, event),)


def stay_behind(record: Any, event: Any, now_ns: int) -> Any:
    return record, (tell_verdict(Verdict.SKIP, event, lost=event.number - record.last - 1),)


def claim_nothing(record: Any, event: Any, now_ns: int) -> Any:
    return advance_window(record, event), (tell_verdict(Verdict.NEXT, event),)


def began_then_or_after(record: Any, event: Any) -> bool:
    return bool(event.frame >= frame_at(record.converged_ns))


def forget_losses(record: Any, event: Any, now_ns: int) -> Any:
    return replace(record, lost=0, listed=()), ()


def advise_once(record: Any, event: Any, now_ns: int) -> Any:
    return loss_notifier.advise(record, event, now_ns)


def one_of_each(record: Any, losses: Any) -> Any:
    for subject, _ in losses:
        record = replace(record, lost=record.lost + 1, by_subject=record.by_subject.set(subject, 1), listed=(subject,))
    return record


def a_frame_later(record: Any, event: Publish) -> int:
    return frame_for(record, event) + 1


def without_time(record: Any, event: Any) -> Any:
    return replace(record, last=event.end)


def is_due_or_just_so(record: Any, event: Any) -> bool:
    due = event.at_ns - record.flipped_ns >= record.window.time_ns
    return bool(due and event.kept > record.window.size)


def list_nobody(record: Any, losses: Any) -> Any:
    return replace(with_losses(record, losses), listed=record.listed)


def is_below_the_last(record: Any, event: Any) -> bool:
    return bool(event.number < record.last)


def displace_the_newest(record: Any, event: Any, now_ns: int) -> Any:
    newest = record.publishers[-1]
    return subject_publishers.put_in_place(record, event, newest), (Tell(Displaced(*newest)),)


def displace_in_silence(record: Any, event: Any, now_ns: int) -> Any:
    return subject_publishers.displace(record, event, now_ns)[0], ()


def whoever_it_is(publisher: str, life: int) -> str:
    return publisher


def the_last(last: int, gaps: Any, number: int) -> int:
    return last


def begin_another_second(row: AnyRow) -> list[AnyRow]:
    """A second without a loss is followed by one more."""
    if isinstance(row, Row) and row.on is SecondOver and row.when is None:
        return [Row(row.on, row.source, NotifierStatus.WAITING, row.do, None, row.clause)]
    return [row]


P, R, N = PUBLISHER_WINDOW, SUBSCRIBER_WINDOW, LOSS_NOTIFIER
_FRAME = "the frame of a stream that begins"

BUGS = (
    Bug("frame-of-now", "a stream that begins has the frame of now, whatever was before", "SW-03", _FRAME,
        replace_call(publisher_window, "frame_for", frame_of_now)),
    Bug("frame-of-its-own", "a subject that goes on under a new frame may get the one it has", "SW-05", _FRAME,
        replace_call(publisher_window, "frame_for", frame_without_its_own)),
    Bug("floor-stays", "what is dropped raises no frame", "SW-07", "the floor",
        change_rows(ROTATION, "flip", do=flip_without_floor)),
    Bug("chain-left-out", "a stream that goes on under a new frame does not say so", "SW-05", "CHAIN",
        change_rows(P, "restart", do=restart_in_silence)),
    Bug("chain-too-high", "CHAIN is one more than the last number", "SW-05", "CHAIN",
        change_rows(P, "restart", do=chain_of_the_next)),
    Bug("base-not-looked-at", "a stream goes on although no base is left", "SW-05", "the look at the base",
        change_rows(P, "restart", when=only_converged)),
    Bug("number-comes-again", "the next message has the number of the last", "SW-04", "the next base",
        change_rows(P, "go_on", do=same_again)),
    Bug("number-left-out", "every other number is left out", "SW-04", "the next base",
        change_rows(P, "go_on", do=every_other)),
    Bug("no-end", "a stream begins in a frame that does not fit", "SW-09", "the look at the frame",
        replace_call(publisher_window, "FRAME_MAX", 2**30)),
    Bug("current-is-dropped", "a flip drops the current generation of a receiver, too", "SW-11", "the old generation",
        on(R, Flip, KNOWN, FRESH, subscriber_window.forget)),
    Bug("old-is-kept", "a receiver never forgets", "SW-12", "what is dropped",
        on(R, Flip, OLD, STAY)),
    Bug("not-moved", "what comes does not move a subject to the current generation", "SW-14", "the move",
        change_rows(R, "take_next", to=STAY)),
    Bug("others-not-moved", "a publisher's record is not moved by what comes of another", "SW-14", "the move",
        on(R, Touched, OLD, STAY)),
    Bug("repeat-is-next", "the last number, coming again, is no repeat", "SW-22", "at or below",
        combine(change_rows(R, "drop_repeat", when=is_below), change_rows(R, "take_rest", do=claim_nothing))),
    Bug("repeat-moves-back", "a repeat takes the record back to its number", "SW-22", "the last number",
        change_rows(R, "drop_repeat", do=move_back)),
    Bug("one-more-lost", "the message that shows a loss counts as lost", "SW-24", "the loss",
        change_rows(R, "take_skip", do=one_more)),
    Bug("skip-is-next", "a number that is ahead is taken for the next", "SW-24", "the loss",
        change_rows(R, "take_skip", do=claim_nothing)),
    Bug("skip-stays-behind", "a loss does not move the record", "SW-24", "the last number",
        change_rows(R, "take_skip", do=stay_behind)),
    Bug("one-less-lost", "of a tail that was lost one message is not counted", "SW-26", "the loss",
        change_rows(R, "take_after_tail", do=one_less)),
    Bug("frames-not-told-apart", "a number of another frame is so many messages ahead", "SW-27", "the frame",
        change_rows(R, "take_skip", when=always)),
    Bug("chain-not-read", "a stream that goes on where the last ended is a loss", "SW-25", "CHAIN",
        replace_call(Numbered, "before", property(nothing_before))),
    Bug("chain-is-believed", "whatever CHAIN says, nothing was lost before it", "SW-26", "CHAIN",
        change_rows(R, "take_after_tail", do=claim_nothing)),
    Bug("another-stream-is-next", "a CHAIN of a stream that nothing is known of is taken for ours", "SW-27", "CHAIN",
        change_rows(R, "take_unknown", when=is_not_the_first)),
    Bug("first-need-not-come", "a stream whose first message was lost counts as begun", "SW-27", "base 1",
        change_rows(R, "take_unknown", when=is_after_another)),
    Bug("cycle-is-a-loss", "a stream that begins after the last was forgotten counts as a loss", "SW-28", "CYCLE",
        change_rows(R, "take_cycle", do=subscriber_window.take_unknown)),
    Bug("not-subscribed-is-next", "what is not subscribed is delivered", "SW-20", "the look at subscriptions",
        change_rows(R, "drop_unsubscribed", do=claim_nothing)),
    Bug("remembers-the-subscription", "who subscribes again has the record of before", "SW-19", "what is forgotten",
        combine(on(R, Unsubscribe, KNOWN, SubscriberWindowStatus.UNSUBSCRIBED), on(R, Subscribe,
             SubscriberWindowStatus.UNSUBSCRIBED, KNOWN))),
    Bug("cap-too-low", "a loss of two is told as one, and as known", "SW-29", "the cap",
        replace_call(subscriber_window, "tell_verdict", tell_at_most_one)),
    Bug("joins-at-the-frame", "a stream of the very frame of the convergence is verified", "SW-31", "strictly later",
        change_rows(LATE_JOIN, "tell_verified", when=began_then_or_after)),
    Bug("joins-unverified", "a stream that is older than the convergence is verified", "SW-32", "the frame",
        change_rows(LATE_JOIN, "tell_unverified", do=tell_verified)),
    Bug("joins-untold", "without a convergence every stream is verified", "SW-33", "who was told",
        change_rows(LATE_JOIN, "tell_unknown", do=tell_verified)),
    Bug("second-forgets", "what was lost within the second is not told", "SW-42", "the second advisory",
        change_rows(N, "advise_and_wait", do=forget_losses)),
    Bug("second-not-set-again", "the second after an advisory at its end is not waited for", "SW-42", "the timer",
        change_rows(N, "advise_and_wait", do=advise_once)),
    Bug("every-loss-at-once", "a loss within the second is advised at once", "SW-41", "the second",
        change_rows(N, "keep", do=loss_notifier.advise_at_once)),
    Bug("idle-with-losses", "the second ends, and what was lost in it waits for the next loss", "SW-44", "the losses",
        change_rows(N, "advise_and_wait", to=NotifierStatus.IDLE, do=None)),
    Bug("losses-counted-as-one", "a loss counts as one, whatever it is", "SW-41", "how many",
        replace_call(loss_notifier, "with_losses", one_of_each)),
    Bug("frame-left-out", "a stream begins a frame later than it may", "SW-05", _FRAME,
        replace_call(publisher_window, "frame_for", a_frame_later)),
    Bug("time-not-kept", "when a stream began is not kept", "SW-08", "TIME",
        replace_call(subscriber_window, "advance_window", without_time)),
    Bug("chain-is-any-number", "a CHAIN that cannot be is believed", "SW-08", "CHAIN",
        replace_call(Numbered, "before", property(lambda event: event.chain))),
    Bug("turns-too-soon", "a window turns when its time is over, and not after it", "SW-10", "strictly more",
        change_rows(ROTATION, "flip", when=is_due_or_just_so)),
    Bug("lists-nobody", "an advisory names no subject", "SW-45", "the subjects",
        replace_call(loss_notifier, "with_losses", list_nobody)),
    Bug("seconds-without-end", "a second without a loss is followed by another", "SW-43", "the end",
        lambda stack: redeclare(stack, N, begin_another_second)),
    Bug("newest-is-forgotten", "for one more publisher the one goes that spoke last", "SW-18", "who was silent longest",
        change_rows(SUBJECT_PUBLISHERS, "displace", do=displace_the_newest)),
    Bug("first-met-is-forgotten", "for one more publisher the one goes that was met first", "SW-18", "the order",
        change_rows(SUBJECT_PUBLISHERS, "move_to_the_end", do=None)),
    Bug("displaced-in-silence", "who goes for another one is remembered all the same", "SW-18", "the record",
        change_rows(SUBJECT_PUBLISHERS, "displace", do=displace_in_silence)),
    Bug("displaced-uncounted", "that publishers were forgotten for others is not remembered", "SW-78", "the mark",
        combine(change_rows(SUBJECT_PUBLISHERS, "displace", to=SubjectPublishersStatus.ROOMY),
             change_rows(R, "displace", do=subscriber_window.forget))),
    Bug("every-first-is-unknown", "a stream that begins anew may have been forgotten for others", "SW-78", "base 1",
        replace_call(subscriber_window, "goes_on", always)),
    Bug("beginning-not-missed", "what a stream lost before the first message that came is not told", "SW-100", "since",
        change_rows(R, "take_first_after_unknown", when=subscriber_window.may_have_been_known)),
    Bug("life-not-read", "a publisher that begins anew has the record of before", "SW-79", "the life",
        replace_call(subject_publishers, "line_of", whoever_it_is)),
    Bug("believes-one-jump", "whatever is below a number that nobody sent is a repeat", "SW-81", "the two runs",
        replace_call(subscriber_window, "last_before", the_last)),
    Bug("inbox-repeats", "the last number of an inbox is accepted again", "SW-52", "equal or lower",
        change_rows(INBOX_WINDOW, "drop", when=is_below_the_last)),
)  # fmt: skip
"""Each with a sentence of its own."""

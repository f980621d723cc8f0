"""Held bugs: mistakes that can be planted in held streams and their process; each is found by exploring."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Delegate
from statemachines.missed_samples.message import Heartbeat
from statemachines.sequence_windows import held_stream_actions as actions
from statemachines.sequence_windows import held_streams
from statemachines.sequence_windows.held_stream import HELD_STREAM
from statemachines.sequence_windows.held_streams import HELD_STREAMS_MACHINE
from statemachines_spec.bug import Bug, change_rows, wrap_call


def always(record: Any, event: Any) -> bool:
    return True


def never(record: Any, event: Any) -> bool:
    return False


# -- the process ----------------------------------------------------------------------------------------------------


def begin_at_message(record: Any, event: Any, now_ns: int) -> Any:
    """What is missing before the message is of no interest."""
    late = replace(event, message=replace(event.message, last=event.message.number - 1))
    return held_streams.begin(record, late, now_ns)


def keep_place(record: Any, event: Any, now_ns: int) -> Any:
    return record, held_streams.end(record, event, now_ns)[1]


# -- a held stream --------------------------------------------------------------------------------------------------


def begin_counted_twice(record: Any, event: Any, now_ns: int) -> Any:
    """The newest run counts what is missing, and so does the window."""
    newest = len(record.runs) - 1
    heartbeat = Heartbeat(record.runs[newest].name, event.before)
    record, effects, seen = actions.step_run(record, newest, heartbeat, now_ns)
    record, more, also = actions.begin_run(record, event.number, True, now_ns)
    return record, (*effects, *more), (*seen, *also)


def pass_before(record: Any, event: Any, now_ns: int) -> Any:
    """The message overtakes what is held."""
    after, (*others, passed) = actions.refuse_run(record, event, now_ns)
    return after, (passed, *others)


def release_any(step_run: Any) -> Any:
    """Whichever run has something to say says it at once."""

    def changed(record: Any, place: int, event: Any, now_ns: int) -> Any:
        record, effects, seen = step_run(record, place, event, now_ns)
        run, more = actions.release(record.runs[place], 0)
        runs = (*record.runs[:place], run, *record.runs[place + 1 :])
        return replace(record, runs=runs), (*effects, *more), seen

    return changed


def release_uncounted(release: Any) -> Any:
    """What the runs before it lost last is forgotten."""

    def changed(run: Any, lost: int) -> Any:
        return release(run, 0)

    return changed


P, S = HELD_STREAMS_MACHINE, HELD_STREAM
_PLACES, _ORDER = "the places", "the order of runs"

HELD_BUGS = (
    Bug("stream-ends-with-a-run", "a stream ends with its oldest run, although another one waits", "SW-95", _ORDER,
        change_rows(P, "go_on", when=never)),
    Bug("runs-without-limit", "a run begins where there is no place", "SW-74", _PLACES,
        change_rows(P, "grant_run", when=always)),
    Bug("place-is-kept", "a stream that has ended keeps its place", "SW-98", _PLACES,
        change_rows(P, "end", do=keep_place)),
    Bug("stream-begins-at-the-message", "a stream begins at the message that showed the hole", "SW-70", "the hole",
        change_rows(P, "begin", do=begin_at_message)),
    Bug("message-before-what-is-held", "where a stream is given up the message goes before what is held", "SW-74",
        _ORDER,
        change_rows(S, "refuse_run", do=pass_before)),
    Bug("tail-is-not-told", "a run does not hear how far its frame went", "SW-73", "the tail",
        change_rows(S, "begin_after_tail", when=never)),
    Bug("tail-counts-twice", "the loss that the window told counts besides that of the run", "SW-94", "whose loss",
        change_rows(S, "begin_after_tail", do=Delegate(begin_counted_twice))),
    Bug("younger-run-first", "what a run says is handed over before the runs before it are settled", "SW-95", _ORDER,
        wrap_call(actions, "step_run", release_any)),
    Bug("loss-between-runs", "what a run lost last is forgotten with it", "SW-95", "the loss",
        wrap_call(actions, "release", release_uncounted)),
    Bug("overtaken-is-repeat", "a message that is missing, and comes after all, is a repeat", "SW-90",
        "what is missing",
        change_rows(S, "fill", when=never)),
    Bug("dropped-is-held", "a stream that is dropped goes on", "SW-75", "the end",
        change_rows(S, "drop", do=None)),
)  # fmt: skip
"""Each with a sentence of its own."""

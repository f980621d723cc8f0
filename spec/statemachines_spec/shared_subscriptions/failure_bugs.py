"""Failure bugs: mistakes in what becomes of messages that fail, each a patch of the shipped machines (`bug`)."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Map
from statemachines.shared_subscriptions import dead_letter_queue, failed_deliveries, plan, stream_store
from statemachines.shared_subscriptions.session_record import StreamReading
from statemachines_spec.bug import Bug, replace_call, wrap_call


def go_on_at_once(set_aside: Any) -> Any:
    """The group goes on behind the message as if its dead letter were there."""

    def wrong(draft: plan.Draft, stream: str) -> None:
        set_aside(draft, stream)
        topic = draft.record.configuration.dead_letter_topic
        if topic:
            failed_deliveries.drop_message(draft, stream, asked=False, topic=topic)

    return wrong


def append_again(store_letter: Any) -> Any:
    """The stream store knows of no letter that it has stored before."""

    def wrong(store: Any, state: stream_store.StoredStreams, request: Any, now_ns: int) -> Any:
        return store_letter(store, replace(state, letters=Map()), request, now_ns)

    return wrong


def due_at_once(record: Any, stream: str) -> bool:
    """Whether or not the count is committed."""
    return failed_deliveries.is_set_aside(record, stream) and not record.failing[stream].skip


FAILURE_BUGS: Final = (
    Bug(
        "repeats-forgotten",
        "what a member that was lost had in hand is handed over as if nobody had been handed any",
        "SS-440",
        "plan.Draft.note_repeats",
        replace_call(plan.Draft, "note_repeats", lambda draft, stream: None),
    ),
    Bug(
        "suspect-not-alone",
        "a message that failed before is handed over together with others",
        "SS-337",
        "session_record.Reading.is_lone",
        replace_call(StreamReading, "is_lone", property(lambda reading: False)),
    ),
    Bug(
        "letter-after-progress",
        "the group goes on behind a message before its dead letter is stored",
        "SS-346",
        "failed_deliveries.set_aside",
        wrap_call(plan, "set_aside", go_on_at_once),
    ),
    Bug(
        "letter-before-count",
        "a dead letter is asked for before it is durable that its message is handed over no more",
        "SS-346",
        "dead_letter_queue.is_due",
        replace_call(dead_letter_queue, "is_due", due_at_once),
    ),
    Bug(
        "letters-repeated",
        "a dead letter that is asked for again is stored again",
        "SS-347",
        "stream_store.StreamStore._store_letter",
        wrap_call(stream_store.StreamStore, "_store_letter", append_again),
    ),
)

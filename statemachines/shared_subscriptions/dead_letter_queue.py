"""Dead letter queue: how a Leader has the dead letters of its parked streams stored, one at a time.

A letter is asked for when it is durable that the stream is parked at the message: from then on no leader hands that
message over.  When the letter is durable the group goes on behind the message.  A letter that cannot be stored is tried
again after the next listing, behind those of other streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, Tell, in_order
from statemachines.shared_subscriptions import claim
from statemachines.shared_subscriptions.dead_letter import (
    REASONS,
    DeadLetter,
    DeadLettersRefused,
    LetterRefused,
    LetterStored,
    LetterUnwritten,
    StoreLetter,
)
from statemachines.shared_subscriptions.failed_deliveries import drop_message, is_set_aside
from statemachines.shared_subscriptions.leader_record import LEADING, SERVING, LeaderRecord, OpenLetter
from statemachines.shared_subscriptions.plan import Draft, hand_out
from statemachines.shared_subscriptions.stream_store import SERVICE, FetchFailed, matches

if TYPE_CHECKING:
    from statemachines.shared_subscriptions.membership import Outcome


def is_letter(record: LeaderRecord, event: LetterStored | LetterRefused | FetchFailed) -> bool:
    """It answers the request that is open."""
    return record.letter is not None and record.letter.n == event.n


def has_own_topic(record: LeaderRecord) -> bool:
    """The group would get its own dead letters."""
    topic = record.configuration.dead_letter_topic
    return topic != "" and matches(record.filter, topic)


def is_due(record: LeaderRecord, stream: str) -> bool:
    """The stream is parked, durably, and nobody has said that the message is to be skipped."""
    trial = record.trial
    is_durable = stream not in record.staged and (trial is None or stream not in dict(trial.staged))
    return is_durable and is_set_aside(record, stream) and not record.failing[stream].skip


def ask_for_letter(record: LeaderRecord, *, is_turn: bool = False) -> tuple[LeaderRecord, Effects]:
    """Ask for the next letter, in turn, unless one is open.  `is_turn`: also where the last one was refused."""
    topic, before = record.configuration.dead_letter_topic, record.letter
    if not topic or not record.failing or has_own_topic(record):
        return record, ()
    if before is not None and (before.n or not is_turn):
        return record, ()
    due = [stream for stream, _ in in_order(record.failing) if is_due(record, stream)]
    if not due:
        return replace(record, letter=None), ()
    last = "" if before is None else before.stream
    stream = next((one for one in due if one > last), due[0])
    failing, n = record.failing[stream], record.number + 1
    reason = failing.reason or REASONS[failing.lost]
    letter = DeadLetter(record.group, record.filter, stream, failing.progress, failing.count, reason)
    failures = 0 if before is None else before.failures
    record = replace(record, number=n, letter=OpenLetter(n, stream, failing.progress, failures))
    return record, (Ask(SERVICE, StoreLetter(n, topic, letter)),)


def look_and_ask(draft: Draft, *, is_turn: bool = False) -> None:
    """As `ask_for_letter`, in a step that is being made."""
    draft.record, effects = ask_for_letter(draft.record, is_turn=is_turn)
    draft.effects.extend(effects)


def finish_letter(record: LeaderRecord, event: LetterStored, now_ns: int) -> Outcome:
    """The letter is durable: the group goes on behind the message."""
    letter = record.letter
    assert letter is not None
    draft = Draft(replace(record, letter=None), now_ns)
    if is_set_aside(record, letter.stream) and record.failing[letter.stream].progress == letter.progress:
        drop_message(draft, letter.stream, asked=False, topic=record.configuration.dead_letter_topic)
    if draft.record.status is LEADING:
        hand_out(draft)
    look_and_ask(draft)
    return draft.finish()


def keep_message(record: LeaderRecord, event: LetterRefused | FetchFailed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """The letter is not there: the stream stays parked."""
    letter = record.letter
    assert letter is not None
    letter = replace(letter, n=0, failures=letter.failures + 1)
    why = event.why if isinstance(event, LetterRefused) else "the stream store does not answer"
    told = LetterUnwritten(record.id, letter.stream, letter.progress, letter.failures, why)
    return replace(record, letter=letter), (Tell(told),)


def begin(record: LeaderRecord, event: claim.StartLeader, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """Look at the claim; say where the group's filter matches the dead-letter topic."""
    topic = record.configuration.dead_letter_topic
    refused = (
        (Tell(DeadLettersRefused(record.id, record.group, record.filter, topic)),) if has_own_topic(record) else ()
    )
    record, asked = claim.look(record, event, now_ns)
    return record, (*refused, *asked)


E = TypeVar("E", bound=Event)
Act = Callable[[LeaderRecord, E, int], tuple[LeaderRecord, Effects]]


def and_ask(action: Act[E]) -> Act[E]:
    """The action after a commit; what is durable by it may have a letter now."""

    def run(record: LeaderRecord, event: E, now_ns: int) -> tuple[LeaderRecord, Effects]:
        record, effects = action(record, event, now_ns)
        if not record.failing or record.status not in SERVING:
            return record, effects
        record, asked = ask_for_letter(record)
        return record, (*effects, *asked)

    run.__name__ = action.__name__
    return run

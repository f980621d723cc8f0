"""Margins: what the machines reckon on the safe side of another clock, each a tick too little, or from another moment.

Each is a `Bug` that timed systems find; by default times such a mistake is too small to show in a simulated run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, SetTimer
from statemachines.shared_subscriptions import borrower, claim, member
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_spec.bug import Apply, Bug, change_rows, wrap_call
from statemachines_spec.shared_subscriptions.succession import TICK_NS


def move_deadline(action: Any, timer: str, by_ns: Any) -> Any:
    """The action, with another deadline of one timer: `by_ns(record, now_ns)` later."""

    def wrong(record: Any, event: Any, now_ns: int) -> Any:
        after, effects = action(record, event, now_ns)
        return after, _later(effects, timer, by_ns(record, now_ns))

    wrong.__name__ = action.__name__
    return wrong


def move_helper_deadline(helper: Any, timer: str, by_ns: Any) -> Any:
    """The same of a helper that is told other things: `by_ns(record, now_ns)` of its first and last."""

    def wrong(record: Any, *rest: Any) -> Any:
        after, effects = helper(record, *rest)
        return after, _later(effects, timer, by_ns(record, rest[-1]))

    return wrong


def _later(effects: Any, timer: str, by_ns: int) -> Any:
    return tuple(
        replace(one, deadline_ns=one.deadline_ns + by_ns) if isinstance(one, SetTimer) and one.timer == timer else one
        for one in effects
    )


def _tick(record: Any, now_ns: int) -> int:
    return TICK_NS


def _tick_less(record: Any, now_ns: int) -> int:
    return -TICK_NS


def _since_ping(record: Any, now_ns: int) -> int:
    return now_ns - int(record.ping_at_ns)


def _since_sent(record: Any, now_ns: int) -> int:
    return now_ns - int(record.trial.sent_at_ns)


def _lease(by_ns: Any) -> Apply:
    return change_rows(
        borrower.BORROWER, "accept_ping_response", do=move_deadline(borrower.accept_ping_response, "lease", by_ns)
    )


def _hand_over(by_ns: Any) -> Apply:
    return change_rows(
        member.MEMBER, "wait_for_lease_end", do=move_deadline(member.wait_for_lease_end, "hand_over", by_ns)
    )


def _found_earlier(watch: Any) -> Any:
    def wrong(record: Any, found: Any, now_ns: int) -> Any:
        return watch(record, found, now_ns - TICK_NS)

    return wrong


def _found_later(watch: Any) -> Any:
    def wrong(record: Any, found: Any, now_ns: int) -> Any:
        return watch(record, found, now_ns + TICK_NS)

    return wrong


def _found_now(watch: Any) -> Any:
    def wrong(record: Any, found: Any, now_ns: int) -> Any:
        return replace(watch(record, found, now_ns), found_at_ns=now_ns)

    return wrong


def _claim(timer: str, by_ns: Any) -> Apply:
    return wrap_call(claim, "begin", lambda begin: move_helper_deadline(begin, timer, by_ns))


MARGINS: Final = (
    Bug(
        "lease-a-tick-longer",
        "a lease lasts a tick longer than L from the sending of its ping",
        "SS-08",
        "the lease of borrower.answered",
        _lease(_tick),
    ),
    Bug(
        "lease-from-the-answer",
        "a lease counts from the receipt of the answer, and not from the sending of the ping",
        "SS-08",
        "the lease of borrower.answered",
        _lease(_since_ping),
    ),
    Bug(
        "hand-over-a-tick-early",
        "a stream is handed over a tick before its lease has surely ended",
        "SS-64",
        "the hand-over of member.wait_for_lease_end",
        _hand_over(_tick_less),
    ),
    Bug(
        "hand-over-without-drift",
        "hand-over waits for L, as if both clocks were one",
        "SS-64",
        "the hand-over of member.wait_for_lease_end",
        _hand_over(lambda record, now_ns: _margin_less(record.configuration)),
    ),
    Bug(
        "grace-a-tick-short",
        "the grace of a new leader ends a tick before every lease from before has surely ended",
        "SS-126",
        "the grace of claim.begin",
        _claim("grace", _tick_less),
    ),
    Bug(
        "claim-a-tick-longer",
        "a claim ends by its owner's clock a tick after it may be too old",
        "SS-123",
        "the claim end of claim.begin",
        _claim("claim_end", _tick),
    ),
    Bug(
        "claim-from-the-answer",
        "a claim counts from the answer of the store, and not from the sending of the request",
        "SS-123",
        "the claim end of claim.begin",
        _claim("claim_end", _since_sent),
    ),
    Bug(
        "watched-a-tick-short",
        "a claim is taken when it has been watched for a tick less than its TTL",
        "SS-120",
        "when claim.watch says that it was found",
        wrap_call(claim, "watch", _found_earlier),
    ),
    Bug(
        "watched-a-tick-longer",
        "a claim is taken when it has been watched for a tick more than its TTL",
        "SS-120",
        "when claim.watch says that it was found",
        wrap_call(claim, "watch", _found_later),
    ),
    Bug(
        "watched-anew-at-each-look",
        "a claim that is as it was before is watched from this look on",
        "SS-135",
        "when claim.watch says that it was found",
        wrap_call(claim, "watch", _found_now),
    ),
    Bug(
        "looked-at-a-tick-late",
        "a claim is looked at again a tick later than a commit interval",
        "SS-135",
        "the retry of claim.look_later",
        wrap_call(claim, "look_later", lambda look_later: move_helper_deadline(look_later, "retry", _tick)),
    ),
)


def _margin_less(ours: Configuration) -> int:
    return ours.lease_ms * 1_000_000 - ours.lease_by_other_clock_ns()


@contextmanager
def shorten_margin(name: str) -> Iterator[Bug]:
    """That margin, for the time of the block; raises `ConfigurationError` with the known names for others."""
    found = {one.name: one for one in MARGINS}
    if name not in found:
        raise ConfigurationError("margin", name, f"unknown; there are: {', '.join(found)}")
    with ExitStack() as stack:
        found[name].apply(stack)
        yield found[name]

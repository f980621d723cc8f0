"""FailingHistory: S20, no innocent is set aside; S21, a message has one dead letter."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from statemachines.kernel import BrokenProperty
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped, StreamParked
from statemachines.shared_subscriptions.session_record import Deliver

Message = tuple[str, int]
"""(stream, offset)"""


class FailingHistory(msgspec.Struct, frozen=True, gc=False):
    """Of one message: how often it was delivered, and whether it is `blamed`: it was delivered alone last, or was given
    back since."""

    deliveries: int = 0
    blamed: bool = False

    def observe_delivery(self, is_alone: bool) -> FailingHistory:
        """It is delivered, and is all that the application has in hand."""
        return FailingHistory(self.deliveries + 1, is_alone)

    def observe_return(self) -> FailingHistory:
        """It is given back."""
        return FailingHistory(self.deliveries, True)

    def check_set_aside(self, event: StreamParked | MessageDropped, most: int) -> tuple[BrokenProperty, ...]:
        """A leader sets it aside, where `most` deliveries were declared.  The first failure may be the end of a grant
        of which nothing was handed over."""
        what = f"{event.stream}: message {event.progress} is set aside"
        if self.deliveries < max(most - 1, 1):
            return (BrokenProperty("S20", f"{what} after {self.deliveries} deliveries, and {most} were declared"),)
        if not self.blamed:
            return (BrokenProperty("S20", f"{what}, and others were in hand when it was delivered last"),)
        return ()


def check_letter(message: Message, stored: Container[Message]) -> tuple[BrokenProperty, ...]:
    """A dead letter is stored, besides those that are `stored`."""
    if message not in stored:
        return ()
    return (BrokenProperty("S21", f"{message[0]}: message {message[1]} has two dead letters"),)


def check_passed(event: MessageDropped, stored: Container[Message]) -> tuple[BrokenProperty, ...]:
    """The group goes on behind a message that is to have a dead letter."""
    if not event.topic or (event.stream, event.progress) in stored:
        return ()
    what = f"{event.stream}: the group goes on behind message {event.progress}, and its dead letter is not there"
    return (BrokenProperty("S21", what),)


def check_no_letter(event: Deliver, stored: Container[Message]) -> tuple[BrokenProperty, ...]:
    """Messages are handed over, none of which has a dead letter."""
    for offset in range(event.first, event.last + 1):
        if (event.stream, offset) in stored:
            detail = f"{event.stream}: message {offset} is handed over, and its dead letter is stored"
            return (BrokenProperty("S21", detail),)
    return ()

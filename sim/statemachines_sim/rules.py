"""Rules: what becomes of single messages, for tests: drop the third ping, delay one grant.

    world.network.rule(drop("ping", nth=3))
    world.network.rule(delay("grant", by_ns=5 * S, to="consumer-1"))

A rule counts the messages that it is about, wherever they go; it hits the `nth` of them, or every one (nth=0).
"""

from __future__ import annotations

from collections.abc import Callable

from statemachines.kernel import ConfigurationError, Message, name_of, node_of


class MessageRule:
    """Hits a message; `seen` counts those that it is about, `hit` those that it has hit."""

    def __init__(
        self, event: str, delays: Callable[[int], tuple[int, ...]], nth: int = 1, sender: str = "", to: str = ""
    ) -> None:
        if nth < 0:
            raise ConfigurationError("rule: nth", nth, "must be 1 or more, or 0 for every message")
        self.event = event
        self.delays = delays
        self.nth = nth
        self.sender = sender
        self.to = to
        self.seen = self.hit = 0

    def applies(self, party: str, to: str, message: Message) -> bool:
        """Whether it hits this one, which is counted."""
        if self.event and name_of(type(message)) != self.event:
            return False
        if not (is_of(party, self.sender) and is_of(to, self.to)):
            return False
        self.seen += 1
        hits = self.nth in (0, self.seen)
        self.hit += hits
        return hits


def drop(event: str = "", *, nth: int = 1, sender: str = "", to: str = "") -> MessageRule:
    """It never arrives.  `event`: the name of the message ("" = any); `sender`, `to`: a node or a party."""
    return MessageRule(event, lambda delay: (), nth, sender, to)


def delay(event: str = "", *, by_ns: int, nth: int = 1, sender: str = "", to: str = "") -> MessageRule:
    """It comes so much later."""
    return MessageRule(event, lambda delay: (delay + by_ns,), nth, sender, to)


def duplicate(event: str = "", *, late_ns: int = 0, nth: int = 1, sender: str = "", to: str = "") -> MessageRule:
    """It comes twice, the copy so much later."""
    return MessageRule(event, lambda delay: (delay + late_ns, delay), nth, sender, to)


def is_of(party: str, wanted: str) -> bool:
    """The party is, or lives on, the one that is wanted ("" = everybody)."""
    return not wanted or wanted in (party, node_of(party))

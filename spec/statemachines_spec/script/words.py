"""Words of a script: what can be done in a step, what nodes are called, and what a message is called."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

Text = Annotated[str, msgspec.Meta(max_length=200)]
Node = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]

NEUTRAL: Final = {
    "start": "the process begins",
    "crash": "the process is gone, and what it had in memory",
    "lose_disk": "the process is gone, and its disk as well",
    "restart": "it comes back, in its next life",
    "pause": "the process stands still",
    "wake": "it goes on; what is due has been due",
    "fire": "a timer of it is due (or several, after a pause)",
    "call": "its application calls: `what` with `fields`",
    "deliver": "a message arrives",
    "copy": "a message arrives, and stays in flight as well",
    "drop": "a message is lost",
    "pass": "time passes",
}
"""What any protocol's script may say; a protocol may add words of its own."""

MESSAGES: Final = ("deliver", "copy", "drop")
PROCESS: Final = ("start", "crash", "lose_disk", "restart", "pause", "wake", "fire", "call")
"""What only a process does, and no service."""


class MessageName(msgspec.Struct, frozen=True):
    """What a message is called: name of the event, nodes, what it is about, whether it is the last word on it."""

    what: str
    sender: str
    to: str
    about: str = ""
    final: bool = False

    def __str__(self) -> str:
        about = f" about {self.about}" if self.about else ""
        return f"{self.what}{' (final)' if self.final else ''}{about} from {self.sender} to {self.to}"


def alike(one: MessageName, other: MessageName) -> bool:
    """Of one name, but for whether it is the last word."""
    return (one.what, one.sender, one.to, one.about) == (other.what, other.sender, other.to, other.about)

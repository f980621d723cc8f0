"""Counterexamples: where a rule of the source breaks; the three limits; and what JOIN needs."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines_spec.explorer.property import Always, Property
from statemachines_spec.explorer.system import System
from statemachines_spec.sequence_windows.publisher import WindowPublisher
from statemachines_spec.sequence_windows.receiver import WindowReceiver, WindowViolation
from statemachines_spec.sequence_windows.systems import BACK, STEADY, WindowSetting, build, never


class WindowCounterexample(msgspec.Struct, frozen=True):
    """`about`: what goes wrong; `breaks`: the property; a limit is what DETECT leaves out, and has its name."""

    name: str
    about: str
    setting: WindowSetting
    breaks: str

    def system(self, variant: str = "settled") -> System:
        """The system in a variant, and of its properties the one that is to break."""
        made = build(self.name, self.about, self.setting, variant)
        wanted = [one for one in made.properties if one.name.partition(" ")[0] == self.breaks]
        return replace(made, properties=tuple(wanted or [strict(made, self.breaks)]))


def strict(made: System, name: str) -> Property:
    """What would hold without a limit, or without what is assumed."""
    receiver = next(one for one in made.actors if isinstance(one, WindowReceiver))
    if name == "JOIN":
        return never(receiver, WindowViolation.JOIN)
    if name == "limit-forgotten":
        return never(receiver, WindowViolation.FORGOTTEN, f"DETECT {name}")
    if name == "limit-cycled":
        return never(receiver, WindowViolation.CYCLED, f"DETECT {name}")
    publisher = next(one for one in made.actors if isinstance(one, WindowPublisher))
    place = (publisher.subjects[0], f"{publisher.name}~1")
    views = (publisher.last_sent(), receiver.find_arrived(place, publisher.messages + 1))
    text = "what was sent has come, or is known to be missing, when nothing is on its way any more"
    return Always(f"DETECT {name}", text, views, lambda sent, arrived: sent <= arrived, quiet=True)


AS_WRITTEN = WindowCounterexample(
    "one-map",
    "two publishers of a subject: what one sends is dropped as a repeat of what the other has sent",
    WindowSetting(walls=(STEADY, STEADY), messages=2, lost=0),
    "ONCE",
)
"""The shipped machines keep the property in the same system."""

LIMITS = (
    WindowCounterexample(
        "limit-forgotten",
        "the receiver's window turns twice: it has forgotten the stream, and the next message is FIRST",
        WindowSetting(messages=3, lost=1, flips=2),
        "limit-forgotten",
    ),
    WindowCounterexample(
        "limit-last",
        "the last message is lost: nothing follows that would show it",
        WindowSetting(messages=2, lost=1),
        "limit-last",
    ),
    WindowCounterexample(
        "limit-cycled",
        "the last message before its publisher forgets the subject is lost: what follows says nothing of it",
        WindowSetting(messages=3, lost=1, own_flips=2),
        "limit-cycled",
    ),
)
"""Of the shipped machines: losses that stay unseen."""

ASSUMED = (
    WindowCounterexample(
        "join-loses-later",
        "the network loses after it has converged: the first message of a stream",
        WindowSetting(messages=2, lost=1, converges=1),
        "JOIN",
    ),
    WindowCounterexample(
        "join-ahead-of-the-clock",
        "a clock that steps back leaves a publisher in a frame that is still to come when the network converges",
        WindowSetting(walls=(BACK,), messages=2, lost=1, converges=1, careful=True),
        "JOIN",
    ),
)
"""Of the shipped machines: JOIN, where what it assumes is not so."""

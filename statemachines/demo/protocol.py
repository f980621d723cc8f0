"""What a protocol may give to `gapless demo`: the part `demo` of its registration.

class Options(msgspec.Struct, frozen=True):
    holders: Annotated[int, msgspec.Meta(description="How many hold.")] = 3        # gapless demo --holders 5

class LockDemo:
    options = Options
    def play(self, out, given, say, advance): ...

DEMO = LockDemo()
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

Say = Callable[[str], None]
"""A line for whoever looks on."""

Advance = Callable[[int, int], None]
"""(done so far, of how many): within the long parts."""


class DemoArguments(msgspec.Struct, frozen=True):
    """What the command was given: `seeds` of simulated runs, and the protocol's own `options`."""

    seeds: int
    options: Any = None


class DemoVerdict(msgspec.Struct, frozen=True):
    """A line of the table at the end: a `check` of a `part`, whether it held, and a figure."""

    part: str
    check: str
    held: bool
    figure: str


class Trace(msgspec.Struct, frozen=True):
    """A trace that the demo made, below `folder`: Spark judges every step of it, and it is a part of the page."""

    part: str
    name: str
    folder: Path


class DemoGlance(msgspec.Struct, frozen=True):
    """A demo in ten seconds: what was `done` to it, and `counts`: numbers, and what each counts."""

    done: str
    counts: tuple[tuple[int, str], ...]


class PlayedDemo(msgspec.Struct, frozen=True):
    """What a protocol's demo came to.

    `lead`: what was done, in a sentence or two, for the page; `wrong`: what does not hold, in words (with it a verdict
    that did not hold); `figures`: for programs.
    """

    lead: str
    verdicts: tuple[DemoVerdict, ...]
    traces: tuple[Trace, ...] = ()
    wrong: tuple[str, ...] = ()
    figures: dict[str, Any] = {}
    glance: DemoGlance = DemoGlance("", ())


class DemoProtocol(Protocol):
    """The part.  `title` of its page; `options`: a Struct whose fields are options of the command, with defaults."""

    title: str
    options: type[msgspec.Struct]

    def check(self, given: DemoArguments) -> None:
        """Raises `ConfigurationError` for an option that is wrong: asked of all before any is played."""
        ...

    def play(self, out: Path, given: DemoArguments, say: Say, advance: Advance) -> PlayedDemo:
        """Play it, its files below `out`.  Raises `ConfigurationError` for an option that is wrong."""
        ...

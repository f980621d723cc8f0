"""What a protocol may give to `gapless demo`: the part `demo` of its registration, a table of what is shown.

class Options(DemoOptions, frozen=True):
    holders: Annotated[int, msgspec.Meta(description="How many hold.")] = 3        # gapless demo --holders 5

def lose_holders(stage):
    stage.tell(f"{stage.options.holders} hold")
    return {"holders": stage.options.holders, "lost": 0}

DEMO = DemoProtocol(
    "Locks: nobody holds one twice",
    (DemoStep("real", lose_holders, "{lost} lost", (DemoClaim("none is lost", "{holders} hold", {"lost": "lost"}),)),),
    options=Options,
)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from statemachines import registry
from statemachines.kernel import ConfigurationError

Say = Callable[[str], None]
"""A line for whoever looks on."""

Advance = Callable[[int, int], None]
"""(done so far, of how many): within the long parts."""

Figures = dict[str, Any]
"""What a step came to: numbers by name, for texts and for programs.

`accounts`: the same of several who took part, where there are several; `wrong`: what does not hold beside the claims.
"""


class DemoOptions(msgspec.Struct, frozen=True):
    """The options of a protocol's demo: each field, which has a default, is an option of the command."""

    def check(self) -> None:
        """Raises `ConfigurationError` for an option that is wrong: asked of all protocols before any is played."""


class LineOptions(DemoOptions, frozen=True):
    """The options of a demo that sends lines."""

    input: Annotated[
        str, msgspec.Meta(description="PATH: a text file or folder whose lines are sent (default: our own source)")
    ] = ""

    @property
    def place(self) -> Path | None:
        """Where the lines are; None: our own source."""
        return Path(self.input) if self.input else None

    def check(self) -> None:
        """Raises `ConfigurationError` where there is no line."""
        self.read_lines(1, 1)

    def read_lines(self, wanted: int, longest: int) -> list[bytes]:
        """`wanted` lines, none blank, each cut to `longest` bytes; of fewer the first come again.

        Raises `ConfigurationError` where there is no line, or nothing that can be read.
        """
        place = self.place or Path(__file__).parents[1] / "kernel"
        if not place.exists():
            raise ConfigurationError("--input", str(place), "is no file and no folder")
        files = sorted(place.rglob("*" if self.input else "*.py")) if place.is_dir() else [place]
        try:
            found = [line[:longest] for file in files if file.is_file() for line in file.read_bytes().split(b"\n")]
        except OSError as error:
            raise ConfigurationError("--input", str(place), f"cannot be read: {error.strerror}") from error
        lines = [line for line in found if line.strip()]
        if not lines:
            raise ConfigurationError("--input", str(place), "has no line in it")
        return list(itertools.islice(itertools.cycle(lines), wanted))


class DemoStage(msgspec.Struct, frozen=True):
    """Where a step is played: its files go below `out`, which is not there yet; `seeds` of simulated runs."""

    part: str
    out: Path
    seeds: int
    options: Any
    say: Say
    advance: Advance

    def tell(self, text: str) -> None:
        """Say a line of this part."""
        self.say(f"{self.part}: {text}")


class DemoClaim(msgspec.Struct, frozen=True):
    """What must hold of a step, and a figure of it.  Texts are formats over the figures.

    `never`: figures that must be 0, and what is said of one that is not, of each account; `holds`: what else must be.
    """

    check: str
    figure: str
    never: dict[str, str] = {}
    holds: Callable[[Figures], bool] = lambda figures: True


class DemoStep(msgspec.Struct, frozen=True):
    """A part of a demo: what is run, what is said when it is over, what must hold.

    `trace`: the title on the page of the trace that the step leaves in `folder` ("": none), of which Spark judges every
    step; `is_played(options)`: the step is part of this demo.
    """

    part: str
    run: Callable[[DemoStage], Figures]
    said: str
    claims: tuple[DemoClaim, ...]
    trace: str = ""
    folder: str = "trace"
    is_played: Callable[[Any], bool] = lambda options: True


class DemoProtocol(msgspec.Struct, frozen=True):
    """The part.  `lead`: what is done, in a sentence or two, for the page; `done`: the same in ten seconds; `counts`:
    figures of the first step for its card, and what each counts.  Texts are formats over the figures of all steps."""

    title: str
    steps: tuple[DemoStep, ...]
    lead: str = ""
    done: str = ""
    counts: tuple[tuple[str, str], ...] = ()
    options: type[DemoOptions] = DemoOptions


def play_at(place: str) -> Callable[[DemoStage], Figures]:
    """What is imported when it is played: `module:CLASS`, which is made of the stage, and runs."""
    return lambda stage: registry.load(place, type, "demo")(stage).run()


def sum_accounts(accounts: Sequence[Figures]) -> Figures:
    """The figures of several who took part, and the sum of each that is a number."""
    numbers = [name for name, value in accounts[0].items() if isinstance(value, int)]
    return {"accounts": accounts, **{name: sum(one[name] for one in accounts) for name in numbers}}

"""Notice: what judges other than exploration noticed of mutants, in a file: who was asked once is not asked again.

They count, as verdicts do, as long as machines, systems and tools are what they were, and the tests as well.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from statemachines.whole_file import make_folder, write_whole


class Notice(msgspec.Struct, frozen=True):
    """`what` a judge noticed of the mutant `name` ("": nothing, within its time)."""

    name: str
    judge: str
    what: str


class Rests(msgspec.Struct, frozen=True):
    """The first line: what the notices rest on, in short; `tests`: and the time that each judge has ("": whichever)."""

    machines: str
    tests: str = ""

    def is_of(self, other: Rests) -> bool:
        """Whether notices of one count for the other."""
        return self.machines == other.machines and other.tests in (self.tests, "")


class Notices:
    """Those so far, by mutant and judge.  Of other machines or tests none count, unless they are `kept`: then all do in
    which something was noticed.  Nothing is written before `begin`."""

    def __init__(self, path: Path, rests: Rests, *, kept: bool = False) -> None:
        self.path = path
        self.rests = rests
        self.found: dict[tuple[str, str], Notice] = {}
        self._read(kept)

    def begin(self) -> None:
        """What counts is in the file, and nothing else, before anybody is asked."""
        make_folder(self.path.parent, "--out")
        lines = [self.rests, *self.found.values()]
        write_whole(self.path, b"".join(msgspec.json.encode(one) + b"\n" for one in lines))

    def _read(self, kept: bool) -> None:
        """A line that was torn ends it."""
        if not self.path.is_file():
            return
        first, *lines = self.path.read_bytes().splitlines() or [b""]
        try:
            same = msgspec.json.decode(first, type=Rests).is_of(self.rests)
            for line in lines if same or kept else ():
                one = msgspec.json.decode(line, type=Notice)
                if same or one.what:
                    self.found[one.name, one.judge] = one
        except (msgspec.DecodeError, UnicodeDecodeError):
            return

    def add(self, notice: Notice) -> None:
        """It is in the file before anybody else is asked."""
        self.found[notice.name, notice.judge] = notice
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(notice) + b"\n")

    def of(self, name: str) -> Notice | None:
        """The first in which something was noticed of this mutant (None: nothing was)."""
        return next((one for one in self.found.values() if one.name == name and one.what), None)

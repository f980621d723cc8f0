"""Protocol: what a protocol says about itself: its machines, its page of clauses, and where its part of each area is.

A small value that imports nothing: machines and areas are `"module:ATTRIBUTE"`, loaded when they are used.  A
distribution makes it known by an entry point of the group `gapless.protocols`:

    [project.entry-points."gapless.protocols"]
    lock_service = "lock_service:PROTOCOL"

where there are no metadata (Spark executors, zipapps), `catalogue.register(PROTOCOL)` or `module:ATTRIBUTE` on the
command line does the same.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from statemachines.kernel.errors import ConfigurationError

GROUP: Final = "gapless.protocols"
"""The group of entry points; the name of each is the name of its protocol."""

AREAS: Final = ("sim", "spec", "reports", "drivers", "testing", "demo")
"""Where a protocol may have a part of its own; each area says in its `protocol.py` what that part is."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
_PREFIX = re.compile(r"[A-Z]{2,8}\Z")
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")
_PAGE = re.compile(r"[A-Za-z_][\w.]*:[\w./-]+\.md\Z")


class Protocol(msgspec.Struct, frozen=True):
    """One protocol.

    `name` as in traces and on the command line; `prefix` of its clauses ("SS": SS-01); `about` in a line; `machines`:
    short name -> `module:ATTRIBUTE`, parents before children; `page`: its clauses, `package:path` of a Markdown file,
    `properties.md` and `decisions.md` beside it ("": it has none); `areas`: area -> `module:ATTRIBUTE`; `commands`:
    verbs of its own for the command line, name -> `module:ATTRIBUTE` of a typer app, whose module should import the
    protocol only when one is run; `rests_on`: protocols whose machines it uses; `processes`: short name ->
    `module:ATTRIBUTE` of a `Process`, named apart from the machines.  Raises `ConfigurationError` where a
    word is not of its form.
    """

    name: str
    prefix: str
    machines: dict[str, str]
    about: str = ""
    page: str = ""
    areas: dict[str, str] = {}
    commands: dict[str, str] = {}
    rests_on: tuple[str, ...] = ()
    processes: dict[str, str] = {}

    def __post_init__(self) -> None:
        what = f"protocol {self.name!r}"
        _check(_NAME, "protocol", self.name, "must be a small letter, then small letters, digits and _")
        _check(_PREFIX, f"{what}: prefix", self.prefix, "must be 2 to 8 capital letters, as clauses begin with")
        for machine, place in self.machines.items():
            _check(_NAME, f"{what}: machine", machine, "must be a small letter, then small letters, digits and _")
            _check(_PLACE, f"{what}: machine {machine}", place, "must be module:ATTRIBUTE")
        for process, place in self.processes.items():
            _check(_NAME, f"{what}: process", process, "must be a small letter, then small letters, digits and _")
            _check(_PLACE, f"{what}: process {process}", place, "must be module:ATTRIBUTE")
            if process in self.machines:
                raise ConfigurationError(f"{what}: process", process, "is the name of a machine of it; rename one")
        if self.page:
            _check(_PAGE, f"{what}: page", self.page, "must be package:path of a .md file")
        for area, place in self.areas.items():
            if area not in AREAS:
                raise ConfigurationError(f"{what}: area", area, f"unknown; there are: {', '.join(AREAS)}")
            _check(_PLACE, f"{what}: area {area}", place, "must be module:ATTRIBUTE")
        for command, place in self.commands.items():
            _check(_COMMAND, f"{what}: command", command, "must be a small letter, then small letters, digits and -")
            _check(_PLACE, f"{what}: command {command}", place, "must be module:ATTRIBUTE")

    def full_name(self, machine: str) -> str:
        """The machine as traces name it."""
        return f"{self.name}/{machine}"


def _check(form: re.Pattern[str], key: str, value: str, rule: str) -> None:
    if not form.match(value):
        raise ConfigurationError(key, value, rule)

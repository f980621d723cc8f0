"""ScriptProtocol: what a protocol says of its scripted runs; its `CheckProtocol` has it as `script`.

Everything has a default: machines without glue need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

import msgspec

from statemachines import registry
from statemachines.kernel import Event, name_of
from statemachines_spec.script.words import MessageName, Node


class Own(Protocol):
    """A protocol's part of a script, a msgspec Struct: who takes part, and how it is set up."""

    def nodes(self) -> Mapping[str, str]:
        """Every node, and what kind it is."""
        ...

    def check(self) -> Any:
        """Raises `ConfigurationError` where something cannot be."""
        ...


class Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of machines without glue: the components of the system, "machine" or "service"."""

    parts: dict[Node, str]

    def nodes(self) -> Mapping[str, str]:
        """As they are."""
        return self.parts

    def check(self) -> Parts:
        """Itself."""
        return self


def no_rules(script: Any, variant: str) -> AbstractContextManager[Any]:
    """The rules are those of the system: nothing is to be installed."""
    return nullcontext()


def about_nothing(event: Any) -> str:
    """A message is called by its name alone."""
    return ""


def never(event: Any) -> Any:
    """Nothing of the kind."""
    return None


class ScriptProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """`own`: its part of a script.  `words` of its own (word -> what it says), `who`: which kinds of node can do what
    (everybody that is no service), `services`: the kinds that are, `started`: the kinds that a step starts (others run
    from the beginning).

    `about(event)`, `is_final(event)`: what a message is about, and whether it is the last word on it.  `by_itself`:
    words for what a node does of itself, maybe sooner; `said(event)`: about what it has done it then (None: not at
    all).  `players`: the machines that scripts are about (none named: all).

    `path`: `module:ATTRIBUTE` of the `PathToScript` that makes one of a path; `simulator`, `asyncio`: of the functions
    that follow one there; `lives`: they judge what must be met in the end, too; `rules(script,
    variant)`: while it is followed, the machines have those.
    """

    own: type[Any] = Parts
    words: dict[str, str] = {}
    who: dict[str, tuple[str, ...]] = {}
    services: tuple[str, ...] = ("service",)
    started: tuple[str, ...] = ()
    about: Callable[[Any], str] = about_nothing
    is_final: Callable[[Any], Any] = never
    by_itself: tuple[str, ...] = ()
    said: Callable[[Event], str | None] = never
    players: tuple[str, ...] = ()
    lives: bool = False
    path: str = "statemachines_spec.script.path_to_script:PathToScript"
    simulator: str = "statemachines_sim.machine_stage:simulate"
    asyncio: str = "statemachines_sim.machine_runtime:run_live"
    rules: Callable[[Any, str], AbstractContextManager[Any]] = no_rules

    def words_of(self, event: Any, sender: str, to: str) -> MessageName:
        """What a message, or a request to a service, is called between two nodes."""
        return MessageName(name_of(type(event)), sender, to, self.about(event), bool(self.is_final(event)))


DEFAULT: Final = ScriptProtocol()


def part_of(protocol: str) -> ScriptProtocol:
    """What the protocol says ("": nothing); raises `ConfigurationError` for one that is not known."""
    if not protocol:
        return DEFAULT
    one = registry.protocol(protocol)
    if "spec" not in one.areas:
        return DEFAULT
    found = getattr(registry.load_area(one.name, "spec"), "script", None)
    return found if isinstance(found, ScriptProtocol) else DEFAULT

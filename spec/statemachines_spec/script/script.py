"""Script: a run as a list of steps that any runtime can carry out: who acts, which message arrives, when.

A counterexample of the explorer becomes one (`path_to_script`); the simulator and the asyncio runtime follow it
(`conductor`).  A message is named by what it is, between which nodes, what it is about, and the step in which it was
sent; no number of the explorer's is in it.  Each step has a time, so that every timer that fires is due just then.

The form is the same for every protocol; `own` is the protocol's part of it (`protocol.ScriptProtocol.own`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from statemachines.input_file import decode_input, read_input
from statemachines.kernel import ConfigurationError
from statemachines.kernel.pmap import dec_hook, enc_hook
from statemachines.whole_file import write_whole
from statemachines_spec.script.protocol import ScriptProtocol, part_of
from statemachines_spec.script.words import MESSAGES, NEUTRAL, PROCESS, MessageName, Node, Text

FORMAT: Final = "gapless script 2"

SIZE_MAX: Final = 2**20
"""Bytes of a file."""

STEPS_MAX: Final = 10_000
LASTS_MAX_NS: Final = 24 * 3_600 * 10**9
"""A run lasts a day at most: sessions look for messages many times a second."""

Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=LASTS_MAX_NS)]
Argument = str | int | bool | tuple[str, ...]


class SentMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message that is sent in a step; `lost`: the network has no room for it."""

    what: Text
    sender: Node
    to: Node
    about: Text = ""
    final: bool = False
    lost: bool = False

    @property
    def words(self) -> MessageName:
        """What the message is called."""
        return MessageName(self.what, self.sender, self.to, self.about, self.final)


class ScriptStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Step `n` at `at_ns`.  `do`: a word of `words.NEUTRAL`, or of the protocol's own.  `what`, `about`: the event, and
    what (or the key of the timer) it is about; `fields`: those of a call, as JSON.  Of a message: `sender`, `final`,
    and that it is the `nth` (from 0) of that name that was sent in step `sent_in`."""

    n: Count
    at_ns: Nanoseconds
    do: Text
    node: Node
    what: Text = ""
    about: Text = ""
    sender: Text = ""
    final: bool = False
    sent_in: Count = 0
    nth: Count = 0
    sends: Annotated[tuple[SentMessage, ...], msgspec.Meta(max_length=1_000)] = ()
    fields: Annotated[str, msgspec.Meta(max_length=10_000)] = ""

    @property
    def words(self) -> MessageName:
        """What the message is called that the step is about."""
        return MessageName(self.what, self.sender, self.node, self.about, self.final)

    def __str__(self) -> str:
        if self.do in MESSAGES:
            return f"{self.do} {self.words}, sent in step {self.sent_in}"
        return " ".join(filter(None, (self.do, self.node, self.what, self.about, self.fields)))


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How any process makes the explored system again: what stands at `module:ATTRIBUTE`, with these arguments."""

    place: Text
    arguments: dict[Text, Argument] = {}


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run of `protocol` ("": of machines that are of none): who takes part (`own`), in which `variant` of the rules
    (with which planted `bug`), and its steps.

    `breaks`: the property that does not hold at the end.  `timers`: those that the explored system leaves out, and that
    may fire here all the same.
    """

    format: Literal["gapless script 2"] = FORMAT
    protocol: Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9_]{0,64}|[\w.]{1,200}:\w{1,64})$")]
    """Its name; `module:ATTRIBUTE` where it is not registered."""
    system: Text
    variant: Text = ""
    bug: Text = ""
    breaks: Text
    why: Text
    origin: Origin | None = None
    own: Any
    timers: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1_000)] = ()
    steps: Annotated[tuple[ScriptStep, ...], msgspec.Meta(max_length=STEPS_MAX)]

    @property
    def part(self) -> ScriptProtocol:
        """What the protocol says of its scripts."""
        return part_of(self.protocol)

    def check(self) -> Script:
        """Itself; raises `ConfigurationError` that names the step where something cannot be."""
        self.own.check()
        _Checker(self).check()
        return self


class _Checker:
    """Looks at the steps in turn: their order in time, who acts, and that each message is there to be had."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._part = script.part
        self._kinds: Mapping[str, str] = script.own.nodes()
        self._started = {node for node, kind in self._kinds.items() if kind not in self._part.started}
        self._there: set[tuple[int, MessageName, int]] = set()
        self._number = 0
        self._at_ns = 0

    def check(self) -> None:
        for step in self._script.steps:
            self._check_step(step)
            counted: Counter[MessageName] = Counter()
            for sent in step.sends:
                if not sent.lost:
                    self._there.add((step.n, sent.words, counted[sent.words]))
                    counted[sent.words] += 1

    def _check_step(self, step: ScriptStep) -> None:
        if step.at_ns < self._at_ns:
            raise _wrong(step, step.at_ns, f"comes before the step before it ({self._at_ns})")
        if step.at_ns > LASTS_MAX_NS:
            raise _wrong(step, step.at_ns, f"a run lasts {LASTS_MAX_NS} ns at most")
        self._at_ns = step.at_ns
        if step.n <= self._number and step.do != "start":
            raise _wrong(step, step.n, f"steps are numbered upwards, and {self._number} came before")
        self._number = max(self._number, step.n)
        for node in (step.node, *(name for sent in step.sends for name in (sent.sender, sent.to))):
            if node not in self._kinds:
                raise _wrong(step, node, f"no such node; there are: {', '.join(sorted(self._kinds))}")
        self._check_who(step)
        if step.do in MESSAGES:
            self._check_message(step)

    def _check_who(self, step: ScriptStep) -> None:
        words = {**NEUTRAL, **self._part.words}
        if step.do not in words:
            raise _wrong(step, step.do, f"nobody can do that; there are: {', '.join(words)}")
        kind = self._kinds[step.node]
        able = self._part.who.get(step.do)
        if able is None and step.do in PROCESS:
            able = tuple(dict.fromkeys(one for one in self._kinds.values() if one not in self._part.services))
        if able is not None and kind not in able:
            raise _wrong(step, step.node, f"a {kind} cannot {step.do}: it must be a {' or '.join(able)}")
        if step.do == "start":
            if step.node in self._started:
                raise _wrong(step, step.node, "is started already")
            self._started.add(step.node)
        elif step.node not in self._started:
            raise _wrong(step, step.node, "is not started yet")

    def _check_message(self, step: ScriptStep) -> None:
        place = (step.sent_in, step.words, step.nth)
        if place not in self._there:
            raise _wrong(step, str(step.words), f"no such message is in flight, sent in step {step.sent_in}")
        if step.do != "copy":
            self._there.remove(place)


def _wrong(step: ScriptStep, value: object, rule: str) -> ConfigurationError:
    return ConfigurationError(f"script, step {step.n}", value, rule)


# -- files ----------------------------------------------------------------------------------------------------------


def encode(script: Script) -> bytes:
    """As JSON, a step a line."""
    text = msgspec.json.format(msgspec.json.encode(script, enc_hook=enc_hook), indent=1).decode()
    head, mark, _ = text.partition('\n "steps": [')
    if not mark or not script.steps:
        return text.encode() + b"\n"
    steps = ",\n".join("  " + msgspec.json.encode(step).decode() for step in script.steps)
    return f"{head}{mark}\n{steps}\n ]\n}}\n".encode()


def write(path: Path, script: Script) -> None:
    """The file is there whole, or not at all.  Raises `ConfigurationError` where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, encode(script))
    except OSError as error:
        raise ConfigurationError("script", str(path), f"cannot be written: {error.strerror}") from error


def looks_like_one(head: bytes) -> bool:
    """Whether a file that begins like this says that it is a script."""
    return re.match(rb'\s*\{\s*"format"\s*:\s*"gapless (script|schedule)', head) is not None


def read(path: Path, data: bytes | None = None) -> Script:
    """The script in a file, or in its bytes where they are read already; raises `ConfigurationError` for anything
    else."""
    if data is None:
        data = read_input(path, "script", SIZE_MAX)
    if len(data) > SIZE_MAX:
        raise ConfigurationError("script", str(path), f"has more than {SIZE_MAX} bytes; a script is smaller")
    raw = decode_input(path, "script", "a script", data, partial(msgspec.json.decode, type=dict[str, Any]))
    try:
        return decode_script(raw).check()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigurationError("script", str(path), f"is not a script: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}: {error.key}", error.value, error.rule) from error


def decode_script(raw: dict[str, Any]) -> Script:
    """The script that a file holds; raises `msgspec.ValidationError`, or `ConfigurationError` for its protocol."""
    script = msgspec.convert(raw, Script)
    own = msgspec.convert(script.own, script.part.own, dec_hook=dec_hook)
    return replace(script, own=own)

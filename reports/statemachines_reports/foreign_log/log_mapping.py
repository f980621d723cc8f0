"""Log mapping: which column of a foreign log is what, and what its writers promise; read from TOML, and checked."""

from __future__ import annotations

import re
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from statemachines.input_file import convert_input, decode_input, read_input
from statemachines.kernel import ConfigurationError

MAP_BYTES_MAX: Final = 2**20

Names = str | tuple[str, ...]
"""A column, or several that are joined by "/"."""


class DeliveryKind(StrEnum):
    """What a row of a delivery log is about."""

    PUBLISH = auto()
    DELIVER = auto()
    ACK = auto()
    COMMIT = auto()
    """Acknowledges every message of the stream with a smaller number."""


class LogColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns of the log by what they are; "": the log has none."""

    event: str = ""
    state: str = ""
    """The state after the event."""
    source: str = ""
    """The state before the event."""
    instance: Names = ""
    """Which instance of the machine."""
    kind: str = ""
    stream: Names = ""
    """Stream, topic, or topic and partition."""
    id: str = ""
    """Number, offset or id of a message in its stream."""
    key: str = ""
    """What identifies a message, if its id does not."""
    consumer: str = ""
    group: str = ""
    owner: str = ""
    """Who holds a stream alone, and since when: the generation, epoch or session is part of it."""
    process: str = ""
    """Whose log the row is from; each file is one process where this is left out."""
    time: str = ""
    number: str = ""
    """Counts the rows of a process one by one."""
    run: str = ""


class DeliveryRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What makes two messages the same, what orders them, and what is promised of them."""

    same: tuple[str, ...]
    """Columns in which two deliveries of one message agree."""
    order: Literal["number", "redis-id", "none"]
    """What the ids of a stream are: whole numbers, MILLISECONDS-NUMBER, or without order."""
    promise: Literal["at-least-once", "exactly-once"] = "at-least-once"
    dense: bool = False
    """The numbers of a stream have no holes, and the logs of all its consumers are here."""
    ordered: bool = False
    """A consumer gets the messages of a stream in order; only what it had before may come again."""
    copies: Literal["", "whole", "seen", "all"] = ""
    """Where each consumer or group gets a copy: "whole": it was subscribed to its streams from the first message to the
    last; "seen": and these are the streams of which it got something; "all": and these are all streams."""
    every_line: Literal["", "publish", "deliver", "ack", "commit"] = ""
    """The kind of every row, where no column says it."""


Value = str | int | bool


class LogMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping file."""

    level: Literal["states", "events", "deliveries"]
    columns: LogColumns
    format: Literal["", "ndjson", "csv", "parquet"] = ""
    """"": by the ending of each file."""
    machine: str = ""
    """protocol/name or module:ATTRIBUTE; a factory of a `transitions` machine is adopted."""
    values: dict[str, dict[str, Value | tuple[Value, ...]]] = {}
    """event, state or kind -> what the judge calls a value -> what the log calls it."""
    ignore: tuple[Value, ...] = ()
    """Values of the event or kind whose rows are left out."""
    guards: dict[str, str] = {}
    """Guard of the machine -> column that says whether it held."""
    time_unit: Literal["", "s", "ms", "us", "ns", "iso"] = ""
    clock_error_ms: float | None = None
    """How far the clocks of two processes may be apart."""
    complete: bool = False
    """No line is missing, and none comes any more."""
    from_start: bool = False
    """Every log begins where its process, or each instance of the machine, began."""
    run: str = ""
    """Of several runs this one."""
    sets_max: int = 256
    """So many sets of possible states are told apart; what needs more is not judged."""
    deliveries: DeliveryRules | None = None

    @property
    def begins_whole(self) -> bool:
        """Nothing is missing before the first line."""
        return self.complete or self.from_start

    @property
    def has_whole_past(self) -> bool:
        """No line is missing before another, unless a hole in the numbers is found."""
        return self.complete or (self.from_start and "number" in self.roles)

    @property
    def rules(self) -> DeliveryRules:
        """The rules of a delivery log, which `check_mapping` asked for."""
        assert self.deliveries is not None
        return self.deliveries

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """What is mapped -> its columns."""
        named = msgspec.structs.asdict(self.columns)
        return {role: (one,) if isinstance(one, str) else tuple(one) for role, one in named.items() if one}

    @property
    def value_role(self) -> str:
        """The column whose values say what happened."""
        return "kind" if self.level == "deliveries" else "event"


MACHINE_ROLES: Final = ("event", "state", "source", "instance")
COMMON_ROLES: Final = ("process", "time", "number", "run")
JOINED: Final = ("stream", "instance")
"""May be several columns."""
PEOPLE: Final = ("consumer", "group", "owner", "process")
"""Who did it: one column may say several of these."""
SAME: Final = ("stream", "id", "key", "consumer", "group")
VALUED: Final = ("event", "state", "kind")


def read_mapping(path: Path) -> LogMapping:
    """The mapping in a file; raises `ConfigurationError`, which names what is wrong and the mend."""
    data = read_input(path, "--map", MAP_BYTES_MAX)
    plain = decode_input(path, "--map", "a mapping (TOML)", data, msgspec.toml.decode)
    return parse_mapping(plain, str(path))


def parse_mapping(plain: Any, where: str) -> LogMapping:
    """The mapping as its TOML says it; `where` it stands."""
    columns = plain.get("columns") if isinstance(plain, dict) else None
    for name, value in columns.items() if isinstance(columns, dict) else ():
        if isinstance(value, list) and name not in JOINED:
            listed = " and ".join(map(str, value))
            raise _wrong(where, f"columns.{name} names several columns ({listed}); name the one that says it")
    try:
        mapping = convert_input(plain, LogMapping)
    except msgspec.ValidationError as error:
        raise _wrong(where, f"is no mapping: {error}") from error
    check_mapping(mapping, where)
    return mapping


def check_mapping(mapping: LogMapping, where: str) -> None:
    """Raises `ConfigurationError` for what does not go together."""
    roles = mapping.roles
    other = (
        MACHINE_ROLES
        if mapping.level == "deliveries"
        else tuple(name for name in LogColumns.__struct_fields__ if name not in (*MACHINE_ROLES, *COMMON_ROLES))
    )
    for role in roles:
        if role in other:
            raise _wrong(where, f"columns.{role} is not looked at on level {mapping.level}; leave it out")
    _check_double_use(mapping, where)
    for role in mapping.values:
        if role not in VALUED or (role not in roles and not (role == "state" and "source" in roles)):
            raise _wrong(where, f"values.{role} is about no mapped column; there are event, state and kind")
    for role in mapping.values:
        _ = list_value_names(mapping, role, where)
    if "time" in roles and not mapping.time_unit:
        raise _wrong(where, "columns.time is mapped, and time_unit is not there; say s, ms, us, ns or iso")
    if mapping.clock_error_ms is not None and not 0 <= mapping.clock_error_ms < 1e9:
        raise _wrong(where, "clock_error_ms must be at least 0, and less than 10^9")
    if mapping.run and "run" not in roles:
        raise _wrong(where, "run is chosen, and columns.run does not say where it stands")
    if not 1 <= mapping.sets_max <= 65_536:
        raise _wrong(where, "sets_max must be from 1 to 65536")
    if mapping.level == "deliveries":
        _check_deliveries(mapping, where)
    else:
        _check_machine(mapping, where)


def _check_machine(mapping: LogMapping, where: str) -> None:
    if not mapping.machine:
        raise _wrong(where, f"level {mapping.level} needs machine: protocol/name, or module:ATTRIBUTE")
    if mapping.deliveries is not None:
        raise _wrong(where, "has [deliveries], which level deliveries alone looks at; leave it out")
    needed = ("event", "state") if mapping.level == "states" else ("event",)
    for role in needed:
        if role not in mapping.roles:
            raise _wrong(where, f"level {mapping.level} needs columns.{role}")
    if mapping.level == "events" and "source" in mapping.roles:
        raise _wrong(where, "columns.source is of level states; on level events only columns.state may be given")
    if len(mapping.guards) > 8:
        raise _wrong(where, "guards: at most 8 guards can be mapped")


def _check_deliveries(mapping: LogMapping, where: str) -> None:
    roles, rules = mapping.roles, mapping.deliveries
    if rules is None:
        raise _wrong(where, "level deliveries needs [deliveries] with same and order")
    if mapping.machine or mapping.guards:
        raise _wrong(where, "machine and guards are not looked at on level deliveries; leave them out")
    if not rules.every_line and "kind" not in roles:
        raise _wrong(where, 'needs columns.kind, or every_line = "deliver" in [deliveries]')
    if rules.every_line and "kind" in roles:
        raise _wrong(where, "has both columns.kind and every_line; keep one of them")
    unknown = [name for name in rules.same if name not in SAME]
    if unknown or not rules.same:
        said = f"has {unknown[0]!r}" if unknown else "is empty"
        raise _wrong(where, f"deliveries.same {said}; it may list {', '.join(SAME)}")
    if "key" not in rules.same and not {"stream", "id"} <= set(rules.same):
        raise _wrong(
            where, 'deliveries.same needs "stream" and "id", or "key": equal payloads are not the same message'
        )
    for role in rules.same:
        if role not in roles:
            raise _wrong(where, f"deliveries.same lists {role}, and columns.{role} is not mapped")
    if rules.order != "none" and not {"stream", "id"} <= roles.keys():
        raise _wrong(where, f'deliveries.order = "{rules.order}" needs columns.stream and columns.id')
    if rules.dense and rules.order != "number":
        raise _wrong(where, 'deliveries.dense needs order = "number": other ids have holes')
    if rules.ordered and rules.order == "none":
        raise _wrong(where, 'deliveries.ordered needs an order: "number" or "redis-id"')
    if rules.copies and not {"consumer", "group"} & set(rules.same):
        raise _wrong(where, 'deliveries.copies needs "consumer" or "group" in same: which of them gets a copy')
    if "owner" in roles and "stream" not in roles:
        raise _wrong(where, "columns.owner needs columns.stream: what is owned")


def _check_double_use(mapping: LogMapping, where: str) -> None:
    used: dict[str, str] = {}
    named = [(column, role) for role, columns in mapping.roles.items() for column in columns]
    named += [(column, f"guards.{guard}") for guard, column in mapping.guards.items()]
    for column, role in named:
        before = used.setdefault(column, role)
        if before != role and not (before in PEOPLE and role in PEOPLE):
            raise _wrong(where, f"column {column!r} stands for {before} and for {role}; each needs a column of its own")


def list_value_names(mapping: LogMapping, role: str, where: str = "--map") -> dict[str, str]:
    """What the log calls a value -> what the judge calls it; raises `ConfigurationError` for one with two meanings."""
    found: dict[str, str] = {}
    for name, given in mapping.values.get(role, {}).items():
        for value in given if isinstance(given, tuple) else (given,):
            text = format_value(value)
            if found.setdefault(text, name) != name:
                raise _wrong(where, f"values.{role}: {text!r} stands for {found[text]} and for {name}")
            if role == mapping.value_role and text in map(format_value, mapping.ignore):
                raise _wrong(where, f"values.{role}: {text!r} stands for {name}, and is ignored as well")
    return found


def format_value(value: Value) -> str:
    """A value of TOML as the text that the log has."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_templates() -> dict[str, Path]:
    """The templates by name."""
    folder = Path(__file__).parent / "templates"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_template(name: str) -> str:
    """The text of a template; raises `ConfigurationError` with those there are."""
    from statemachines.registry import make_unknown_error

    templates = list_templates()
    if name not in templates or not re.fullmatch(r"[a-z_]+", name):
        raise make_unknown_error("--template", name, templates)
    return templates[name].read_text(encoding="utf-8")


def _wrong(where: str, rule: str) -> ConfigurationError:
    return ConfigurationError("--map", where, rule)

"""Log mapping: which column of a foreign log is what, and what its writers promise; read from TOML, and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    _refuse(
        where,
        ((one in other, f"columns.{one} is not looked at on level {mapping.level}; leave it out") for one in roles),
    )
    _check_double_use(mapping, where)
    told = {*roles, *(("state",) if "source" in roles else ())}
    rule = "is about no mapped column; there are event, state and kind"
    _refuse(where, ((one not in VALUED or one not in told, f"values.{one} {rule}") for one in mapping.values))
    for role in mapping.values:
        _ = list_value_names(mapping, role, where)
    error_ms = mapping.clock_error_ms
    _refuse(where, (
        ("time" in roles and not mapping.time_unit,
         "columns.time is mapped, and time_unit is not there; say s, ms, us, ns or iso"),
        (error_ms is not None and not 0 <= error_ms < 1e9, "clock_error_ms must be at least 0, and less than 10^9"),
        (mapping.run and "run" not in roles, "run is chosen, and columns.run does not say where it stands"),
        (not 1 <= mapping.sets_max <= 65_536, "sets_max must be from 1 to 65536"),
    ))  # fmt: skip
    _refuse(where, _deliveries_rules(mapping) if mapping.level == "deliveries" else _machine_rules(mapping))


def _refuse(where: str, rules: Iterable[tuple[object, str]]) -> None:
    """Raises for the first of (it is so, what is wrong then) that is so."""
    for is_so, rule in rules:
        if is_so:
            raise _wrong(where, rule)


def _machine_rules(mapping: LogMapping) -> tuple[tuple[object, str], ...]:
    level, roles = mapping.level, mapping.roles
    return (
        (not mapping.machine, f"level {level} needs machine: protocol/name, or module:ATTRIBUTE"),
        (mapping.deliveries is not None, "has [deliveries], which level deliveries alone looks at; leave it out"),
        ("event" not in roles, f"level {level} needs columns.event"),
        (level == "states" and "state" not in roles, f"level {level} needs columns.state"),
        (level == "events" and "source" in roles,
         "columns.source is of level states; on level events only columns.state may be given"),
        (len(mapping.guards) > 8, "guards: at most 8 guards can be mapped"),
    )  # fmt: skip


def _deliveries_rules(mapping: LogMapping) -> tuple[tuple[object, str], ...]:
    roles, rules = mapping.roles, mapping.deliveries
    if rules is None:
        return ((True, "level deliveries needs [deliveries] with same and order"),)
    same = set(rules.same)
    unknown = [name for name in rules.same if name not in SAME]
    said = f"has {unknown[0]!r}" if unknown else "is empty"
    return (
        (mapping.machine or mapping.guards, "machine and guards are not looked at on level deliveries; leave them out"),
        (not rules.every_line and "kind" not in roles,
         'needs columns.kind, or every_line = "deliver" in [deliveries]'),
        (rules.every_line and "kind" in roles, "has both columns.kind and every_line; keep one of them"),
        (unknown or not same, f"deliveries.same {said}; it may list {', '.join(SAME)}"),
        ("key" not in same and not {"stream", "id"} <= same,
         'deliveries.same needs "stream" and "id", or "key": equal payloads are not the same message'),
        *((role not in roles, f"deliveries.same lists {role}, and columns.{role} is not mapped")
          for role in rules.same),
        (rules.order != "none" and not {"stream", "id"} <= roles.keys(),
         f'deliveries.order = "{rules.order}" needs columns.stream and columns.id'),
        (rules.dense and rules.order != "number", 'deliveries.dense needs order = "number": other ids have holes'),
        (rules.ordered and rules.order == "none", 'deliveries.ordered needs an order: "number" or "redis-id"'),
        (rules.copies and not {"consumer", "group"} & same,
         'deliveries.copies needs "consumer" or "group" in same: which of them gets a copy'),
        ("owner" in roles and "stream" not in roles, "columns.owner needs columns.stream: what is owned"),
    )  # fmt: skip


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

"""Reference of configuration: a table of keys for each declaration, with unit, default, bounds and clause."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from statemachines import registry
from statemachines_sim.scenario import Net, Phases, Swarm, sim_of

NOTES = Path(__file__).with_name("configuration.toml")
UNITS = {"ms": "ms", "s": "s", "us": "µs", "ns": "ns", "bytes": "bytes", "size": "bytes"}
OPTIONS = {
    "PublisherOptions": ("statemachines.drivers.missed_samples.publisher", "declare_reliable_publisher"),
    "CacheOptions": ("statemachines.drivers.missed_samples.cache", "declare_reliability_cache"),
    "SubscriberOptions": ("statemachines.drivers.missed_samples.subscriber", "declare_reliable_subscriber"),
    "SequencedPublisherOptions": ("statemachines.drivers.sequence_windows.zenoh", "declare_sequenced_publisher"),
    "SequencedSubscriberOptions": ("statemachines.drivers.sequence_windows.zenoh", "declare_sequenced_subscriber"),
}
"""Record of options -> its module, and the function that takes them by name."""
ENVIRONMENT = """
## Environment

| variable | meaning |
|---|---|
| `GAPLESS_SECRET` | The secret of all nodes, instead of `--secret-file`. |
| `GAPLESS_NODE_SECRET` | The secret of session nodes alone, instead of `--node-secret-file`. |
| `GAPLESS_RUN` | The name of the run in the heads of trace logs. |
| `GAPLESS_SEGMENT_SECONDS` | Logs are written in segments, each closed so many seconds after its first row (10). |
| `GAPLESS_SEGMENT_BYTES` | Logs are written in segments, each closed by the row that makes it so long (16 MiB). |

"""


def read_sections() -> list[dict[str, Any]]:
    """What is written by hand about declarations of configuration."""
    sections: list[dict[str, Any]] = tomllib.loads(NOTES.read_text(encoding="utf-8"))["section"]
    return sections


def load_type(place: str) -> type[msgspec.Struct]:
    return registry.load(place, type, "type of configuration")


def write_page() -> str:
    """The page of all configuration."""
    parts = [
        "# Configuration\n\nEvery key of a declaration of configuration, by what it configures; "
        "options of commands are on the page of commands. Names carry the unit of a time. "
        "A value that breaks a bound or a relation is refused: the error names the key, the value and the rule.\n",
    ]
    for one in read_sections():
        kind = load_type(one["type"])
        parts.append(f"## {one['title']}\n\n`{kind.__name__}` of `{kind.__module__}`.{_one_line(one['about'])}\n")
        rows = []
        for field in msgspec.structs.fields(kind):
            meaning, least, most, clause = one["keys"][field.name]
            bounds = _show_bounds(field.default, least, most)
            rows.append(
                (f"`{field.name}`", meaning, unit_of(field.name), _show(field.default), bounds, link_clauses(clause))
            )
        parts.append(make_table(("key", "meaning", "unit", "default", "bounds", "clause, relation"), rows))
    parts.append(ENVIRONMENT)
    parts.append("## Options over zenoh\n\nThe functions take them by name, and say what they mean.\n")
    for kind_name, (module, function) in OPTIONS.items():
        parts.append(_describe(f"`{function}`", load_type(f"{module}:{kind_name}"), function_of(module, function)))
    parts.append(
        "## Scenario files\n\nKeys of a scenario for every protocol; each protocol has a section of its own.\n"
    )
    for name, kind in (("network", Net), ("phases", Phases), ("swarm", Swarm)):
        parts.append(_describe(f"`[{name}]`", kind, inspect.getdoc(kind) or ""))
    for protocol in registry.protocols():
        if "sim" in protocol.areas:
            section = sim_of(protocol.name).section
            parts.append(_describe(f"`[{protocol.name}]`", section, ""))
            for field in msgspec.structs.fields(section):
                if isinstance(field.default, msgspec.Struct) and type(field.default).__module__ == section.__module__:
                    parts.append(_describe(f"`[{protocol.name}.{field.name}]`", type(field.default), ""))
    return "\n".join(parts)


def function_of(module: str, name: str) -> str:
    return inspect.getdoc(registry.load(f"{module}:{name}", object, "function")) or ""


def unit_of(key: str) -> str:
    """The unit that the name of a key says; "" where it counts things."""
    return UNITS.get(key.rpartition("_")[2], "")


def link_clauses(text: str, specification: str = "../spec") -> str:
    """The text, each clause and decision of a protocol in it a link; `specification`: the folder, from the page."""
    names = {one.prefix: one.name for one in registry.protocols()}

    def replace(found: re.Match[str]) -> str:
        page = "decisions" if found[2] == "D" else "clauses"
        return f"[{found[0]}]({specification}/{names[found[1]]}/{page}.md#{found[0].lower()})"

    return re.sub(rf"\b({'|'.join(names)})-(D?)\d+", replace, text)


def read_field_notes(kind: type) -> dict[str, str]:
    """Field -> the text that stands below it in the declaration."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    found = {}
    for one, after in pairwise(body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(after, ast.Expr):
            found[one.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


def _describe(title: str, kind: type[msgspec.Struct], about: str) -> str:
    notes = read_field_notes(kind)
    fields = msgspec.structs.fields(kind)
    rows = [(f"`{one.name}`", notes.get(one.name, ""), unit_of(one.name), _show(one.default)) for one in fields]
    if not notes:
        rows = [(key, unit, default) for key, _, unit, default in rows]
        return f"### {title}\n\n{about}\n\n" + make_table(("key", "unit", "default"), rows)
    return f"### {title}\n\n{about}\n\n" + make_table(("key", "meaning", "unit", "default"), rows)


def make_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _show(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return "see there"
    if value is msgspec.NODEFAULT:
        return ""
    return "none" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def _show_bounds(default: Any, least: int, most: int) -> str:
    if isinstance(default, bool | str | msgspec.Struct):
        return ""
    return f"{least} to {_number(most)}" if most else f"at least {_number(least)}"


def _number(value: int) -> str:
    if value < 10**6:
        return str(value)
    power = value.bit_length()
    return {1 << (power - 1): f"2^{power - 1}", (1 << power) - 1: f"2^{power} - 1"}.get(value, f"{value:,}")


def _one_line(text: str) -> str:
    return " " + " ".join(text.split())

"""The frame of the demo: protocols play one after the other, Spark judges their traces, one page shows all of it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect

from statemachines import registry
from statemachines.demo.protocol import Advance, DemoArguments, DemoProtocol, DemoVerdict, Say
from statemachines.kernel import ConfigurationError


class DemoResult(msgspec.Struct, frozen=True):
    """What one protocol's demo came to, the verdicts of Spark with its own."""

    protocol: str
    verdicts: list[DemoVerdict]
    wrong: list[str]
    figures: dict[str, Any]


class Demo(msgspec.Struct, frozen=True):
    """Everything; `held` decides the exit status."""

    held: bool
    played: list[DemoResult]
    page: str
    seconds: float


def having_demo() -> tuple[str, ...]:
    """The protocols that have a demo, by name."""
    return tuple(one.name for one in registry.protocols() if "demo" in one.areas)


def demo_of(protocol: str) -> DemoProtocol:
    """The demo of a protocol.  Raises `ConfigurationError` where it has none, naming those that do."""
    found: DemoProtocol = registry.load_area(protocol, "demo")
    return found


def options_of(protocol: str) -> dict[str, str]:
    """The options of a protocol's demo: `--name` -> what it is for."""
    kind = demo_of(protocol).options
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    hints = get_type_hints(kind, include_extras=True)
    return {f"--{field.name.replace('_', '-')}": _about(hints[field.name]) for field in info.fields}


def _about(hint: Any) -> str:
    said = [meta.description for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return said[0] or "" if said else ""


def read_options(protocol: str, words: dict[str, str]) -> Any:
    """The options of a protocol's demo, of those words (`--name` -> value) that are its own.

    Raises `ConfigurationError` for a value that is not of its kind.
    """
    own = {name[2:].replace("-", "_"): value for name, value in words.items() if name in options_of(protocol)}
    kind = demo_of(protocol).options
    for name, value in own.items():
        try:
            msgspec.convert({name: value}, kind, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"--{name.replace('_', '-')}", value, str(error).partition(" - at")[0]) from error
    return msgspec.convert(own, kind, strict=False)


def run(protocols: tuple[str, ...], out: Path, given: dict[str, DemoArguments], say: Say, advance: Advance) -> Demo:
    """Play the demos of these protocols; what an earlier one left in `out` is replaced."""
    from statemachines_reports.page import PageGlance, PageSection, part_of, write_page
    from statemachines_reports.pipeline import analyze_all

    begin = time.monotonic()
    for name in protocols:
        demo_of(name).check(given[name])
    shutil.rmtree(out / "report", ignore_errors=True)
    done = {}
    for name in protocols:
        shutil.rmtree(out / name, ignore_errors=True)
        done[name] = demo_of(name).play(out / name, given[name], say, advance)
    traces = [(name, trace) for name, came in done.items() for trace in came.traces]
    say(f"spark: judging every step of the {', the '.join(trace.name for _, trace in traces)}")
    folders = [(trace.folder, out / "report" / name / trace.part) for name, trace in traces]
    analyses = analyze_all(folders, are_compared=False)
    played = {
        name: DemoResult(name, list(came.verdicts), list(came.wrong), came.figures) for name, came in done.items()
    }
    parts: list[PageSection] = []
    first: dict[str, int] = {}
    for (name, trace), analysis in zip(traces, analyses, strict=True):
        played[name].wrong.extend(f"{trace.part}: there is no log of {log}" for log in analysis.absent)
        played[name].verdicts.extend(
            DemoVerdict(trace.part, f"{one.name} ({one.level})", one.held, f"{one.checked:,} looked at")
            for one in analysis.checks
        )
        titled = trace.name if len(protocols) == 1 else f"{demo_of(name).title.partition(':')[0]}: {trace.name}"
        first.setdefault(name, len(parts))
        parts.append(part_of(titled, analysis, done[name].lead if first[name] == len(parts) else ""))
    page = out / "report" / "index.html"
    broken = {name for name, one in played.items() if one.wrong or not all(line.held for line in one.verdicts)}
    glances = [
        PageGlance(demo_of(name).title, came.glance.done, came.glance.counts, name not in broken, first.get(name, -1))
        for name, came in done.items()
    ]
    title = demo_of(protocols[0]).title if len(protocols) == 1 else f"{len(protocols)} protocols under failures"
    lead = " ".join(came.lead for name, came in done.items() if name not in first)
    write_page(page, title, lead, parts, glances=glances)
    held = not broken
    return Demo(held, list(played.values()), str(page), time.monotonic() - begin)

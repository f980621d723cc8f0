"""The frame of the demo: protocols play one after the other, Spark judges their traces, one page shows all of it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec
from msgspec import inspect

from statemachines import registry
from statemachines.demo.protocol import DemoOptions, DemoProtocol, DemoStage, DemoStep, Figures
from statemachines.kernel import ConfigurationError


class DemoVerdict(msgspec.Struct, frozen=True):
    """A line of the table at the end: a `check` of a `part`, whether it held, and a figure."""

    part: str
    check: str
    held: bool
    figure: str


class DemoResult(msgspec.Struct, frozen=True):
    """What one protocol's demo came to, the verdicts of Spark with its own; `figures` of each step."""

    protocol: str
    verdicts: list[DemoVerdict] = []
    wrong: list[str] = []
    figures: dict[str, Figures] = {}

    @property
    def is_held(self) -> bool:
        """All of it."""
        return not self.wrong and all(line.held for line in self.verdicts)


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
    info = inspect.type_info(demo_of(protocol).options)
    assert isinstance(info, inspect.StructType)
    schemas = {field.name: getattr(field.type, "extra_json_schema", None) or {} for field in info.fields}
    return {f"--{name.replace('_', '-')}": schema.get("description", "") for name, schema in schemas.items()}


def read_options(protocol: str, words: dict[str, str]) -> DemoOptions:
    """The options of a protocol's demo, of those words (`--name` -> value) that are its own.

    Raises `ConfigurationError` for a value that is not of its kind.
    """
    own = {name[2:].replace("-", "_"): value for name, value in words.items() if name in options_of(protocol)}
    try:
        return msgspec.convert(own, demo_of(protocol).options, strict=False)
    except msgspec.ValidationError as error:
        rule, _, name = str(error).removesuffix("`").partition(" - at `$.")
        raise ConfigurationError(f"--{name.replace('_', '-')}", own[name], rule) from error


def judge_step(step: DemoStep, figures: Figures, came: DemoResult) -> None:
    """Add to the result what holds of a step that came to these figures, and what does not."""
    came.wrong.extend(figures.get("wrong", ()))
    for claim in step.claims:
        wrong = [
            text.format(**one)
            for one in figures.get("accounts", [figures])
            for name, text in claim.never.items()
            if one[name]
        ]
        came.wrong.extend(wrong)
        held = not wrong and claim.holds(figures)
        came.verdicts.append(DemoVerdict(step.part, claim.check, held, claim.figure.format(**figures)))


def run(stage: DemoStage, given: dict[str, DemoOptions]) -> Demo:
    """Play the demos of these protocols, with their options; what an earlier one left below `stage.out` is replaced."""
    from statemachines_reports.page import PageGlance, PageSection, part_of, write_page
    from statemachines_reports.pipeline import analyze_all

    begin = time.monotonic()
    for options in given.values():
        options.check()
    report = stage.out / "report"
    shutil.rmtree(report, ignore_errors=True)
    demos = {name: demo_of(name) for name in given}
    played = {name: DemoResult(name) for name in given}
    traces: list[tuple[str, DemoStep, Path]] = []
    for name, options in given.items():
        shutil.rmtree(stage.out / name, ignore_errors=True)
        for step in (one for one in demos[name].steps if one.is_played(options)):
            place = msgspec.structs.replace(stage, part=step.part, out=stage.out / name / step.part, options=options)
            started = time.monotonic()
            figures = played[name].figures[step.part] = {**step.run(place), "seconds": time.monotonic() - started}
            place.tell(f"{step.said}; {{seconds:.0f}} s".format(**figures))
            judge_step(step, figures, played[name])
            if step.trace:
                traces.append((name, step, place.out / step.folder))
    stage.say(f"spark: judging every step of the {', the '.join(step.trace for _, step, _ in traces)}")
    analyses = analyze_all([(folder, report / name / step.part) for name, step, folder in traces], are_compared=False)
    leads = {name: demos[name].lead.format(**came.figures) for name, came in played.items()}
    parts: list[PageSection] = []
    first: dict[str, int] = {}
    for (name, step, _), analysis in zip(traces, analyses, strict=True):
        played[name].wrong.extend(f"{step.part}: there is no log of {log}" for log in analysis.absent)
        played[name].verdicts.extend(
            DemoVerdict(step.part, f"{one.name} ({one.level})", one.held, f"{one.checked:,} looked at")
            for one in analysis.checks
        )
        titled = step.trace if len(given) == 1 else f"{demos[name].title.partition(':')[0]}: {step.trace}"
        first.setdefault(name, len(parts))
        parts.append(part_of(titled, analysis, leads.pop(name, "")))
    glances = [
        PageGlance(
            demos[name].title,
            demos[name].done.format(**came.figures),
            tuple((came.figures[demos[name].steps[0].part][count], what) for count, what in demos[name].counts),
            came.is_held,
            first.get(name, -1),
        )
        for name, came in played.items()
    ]
    title = glances[0].title if len(given) == 1 else f"{len(given)} protocols under failures"
    page = report / "index.html"
    write_page(page, title, " ".join(leads.values()), parts, glances=glances)
    return Demo(all(one.is_held for one in played.values()), list(played.values()), str(page), time.monotonic() - begin)

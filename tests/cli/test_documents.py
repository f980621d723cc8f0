"""Documents: every relative link leads somewhere, every command that is shown is one, every page can be reached."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from statemachines.cli import app, run

ROOT = Path(__file__).parents[2]
SKIPPED = {".venv", "out", "build", "dist", "node_modules"}
PAGES = sorted(
    path
    for folder in ROOT.iterdir()
    if folder.name not in SKIPPED and not folder.name.startswith(".")
    for path in ([folder] if folder.suffix == ".md" else folder.rglob("*.md"))
    if not any(part in SKIPPED or part.startswith(".") for part in path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def links(path: Path) -> list[str]:
    """Relative links outside of code."""
    found = LINK.findall(re.sub(r"`[^`\n]*`", "", FENCED.sub("", text(path))))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(path: Path) -> set[str]:
    """What a heading may be called in a link, as the usual hosts make it."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def commands(path: Path) -> list[str]:
    """The lines of `gapless` that a page shows, in indented or fenced blocks, without what is said beside them."""
    lines = re.findall(r"^(?:    |\$ )?(?:\S*/bin/)?gapless .*$", text(path), re.MULTILINE)
    return [re.split(r" {2,}", re.sub(r"^(?:    |\$ )?\S*gapless ", "", line))[0] for line in lines]


STRANGERS = ("lock:PROTOCOL/", "lock/", "lock_service/")
"""Roles of the protocols that pages and examples build."""

SHOWN = sorted({(name(path), line) for path in PAGES for line in commands(path)})


RUN = {
    "simulate list": 0,
    "simulate storm --seed 7": 0,
    "simulate shared_subscriptions/lossy --seed 1 --trace out/sim": 0,
    "analyze out/sim --out out/report": 0,
    "simulate deaths_and_stops --trace out/queue": 0,
    "analyze out/queue": 0,
    "damage out/sim --kind deliver-removed --seed 7 --out out/damaged": 0,
    "campaign sequence_windows/any_weather --seeds 1 --trace out/damage": 0,
    "damage out/damage --all --tries 4": 1,
    "campaign any_sessions --seeds 100": 0,
    "campaign storm --seeds 10000 --processes 8 --trace out/sim": 0,
    "campaign storm --seeds 10000 --processes 8 --trace out/sim --resume": 0,
    "campaign storm --set configuration.exclusive=false --trace out/off": 0,
    "check shared_subscriptions --system late-copies --variant as_written --script stale.json --trace out/stale": 1,
    "replay stale.json": 1,
    "replay stale.json --runtime": 1,
    "replay stale.json --variant settled": 0,
    "check list": 0,
    'check shared_subscriptions --system pause --without "lease before hand-over"': 1,
    "check shared_subscriptions --system revoke-timeout --liveness": 0,
    "check persistent_sessions --variant as_written --system path-broken --script path.json": 1,
    "explore sequence_windows --system rotation --html rotation.html": 0,
    "explore shared_subscriptions --system late-copies --variant as_written --html stale.html": 1,
    "show shared_subscriptions/stream --html stream.html": 0,
    "show": 0,
    "show borrower": 0,
    "schema shared_subscriptions": 0,
    "mutate cursor_recovery --list": 0,
    "group declare '$shared/billing/orders/#' --store messages.db --order relaxed": 0,
    "group parked '$shared/billing/orders/#' --store messages.db": 0,
}
"""Commands as pages show them, one of each form that no test of a page runs -> their exit codes, in an order in which
each finds the files that it needs.  Roles of nodes, benchmarks, clusters and hour-long runs have tests of their own."""


def test_commands_run_as_they_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert set(RUN) <= {line for _, line in SHOWN}
    for line, ended in RUN.items():
        words = shlex.split(re.sub(r"--(seeds|tries|processes) \d+", r"--\1 1", line))
        few = ["--seeds", "1"] if words[0] == "campaign" else []
        assert run([*words, *few]) == ended, (line, capsys.readouterr())


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(path):
    for link in links(path):
        where, _, anchor = link.partition("#")
        target = (path.parent / where).resolve() if where else path
        assert target.exists(), f"{name(path)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{name(path)} links to {link}, and no heading is called so"


def test_every_page_is_reached_from_the_readme():
    """Or from whoever is reached; what nobody links to nobody reads."""
    reached = {ROOT / "README.md"}
    left = list(reached)
    while left:
        path = left.pop()
        for link in links(path):
            target = (path.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                left.append(target)
    missing = [name(path) for path in PAGES if path not in reached and path.name != "CHANGELOG.md"]
    assert missing == []


@pytest.mark.parametrize(("page", "line"), SHOWN, ids=[f"{page}: {line[:60]}" for page, line in SHOWN])
def test_every_command_that_is_shown_is_one_with_these_options(page, line):
    words = shlex.split(line.replace("...", "").removesuffix("\\"), comments=True)
    command = get_command(app)
    while isinstance(command, TyperGroup) and words:
        context = typer.Context(command)
        if words[0].startswith(STRANGERS):
            return  # a role of a protocol that is not installed here; tests/examples runs these pages
        assert words[0] in command.list_commands(context), f"{page}: no command gapless {line}"
        command = command.get_command(context, words.pop(0))
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    words = words[: words.index("--")] if "--" in words else words  # what follows is somebody else's command
    used = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert used <= known | {"--help"}, f"{page}: gapless {line}"


ENTERED = re.compile(r"([\w.]+)\(((?:[^()]|\([^()]*\))*)\) as (\w+)")


def list_usages():
    """(module, class, attributes, arguments) that docstrings of the drivers show: `async with Class(...) as name`."""
    for path in sorted((ROOT / "statemachines/drivers").rglob("*.py")):
        document = ast.get_docstring(ast.parse(text(path)), clean=False) or ""
        shown = "\n".join(re.findall(r"^ {4,}\S.*$", document, re.MULTILINE))
        for owner, given, name in ENTERED.findall(shown):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield (
                module,
                owner,
                {*re.findall(rf"\b{name}\.(\w+)\(", shown)},
                {*re.findall(r"(\w+)=", re.sub(r"\([^()]*\)", "", given))},
            )


USAGES = list(list_usages())


@pytest.mark.parametrize(("module", "owner", "used", "given"), USAGES)
def test_what_the_docstring_of_a_driver_uses_is_there(module, owner, used, given):
    here, _, name = owner.rpartition(".")
    places = [import_module(module), import_module(module.rpartition(".")[0])]
    found = next(found for one in places if (found := getattr(getattr(one, here, one), name, None)) is not None)
    options = inspect.signature(found).parameters
    assert given <= set(options) or "options" in options
    assert [one for one in used if not hasattr(found, one)] == [] or not isinstance(found, type)


def test_enough_is_looked_at():
    """The patterns still find what they are for."""
    assert len(PAGES) > 20
    assert len(SHOWN) > 30
    assert len(USAGES) > 10
    assert ("README.md", "show borrower --markdown") not in SHOWN
    assert any(page == "README.md" and line.startswith("simulate storm") for page, line in SHOWN)


def test_every_target_that_the_readme_names_is_in_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in PAGES:
        shown = set(re.findall(r"(?:^    |`)make ([a-z]+)", text(path), re.MULTILINE))
        assert shown <= targets, name(path)

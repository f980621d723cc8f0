"""The texts of every protocol: one form, nothing cited that is not there, no word used before it is defined.

What is everybody's names no protocol, machine or role: in no line a protocol, in no string a machine or role.

A protocol's own rooms are the folders of its name.  House words that some protocol has for a machine too are listed.

Documents: every relative link leads somewhere, every command that is shown is one, every page can be reached.
"""

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

from statemachines import catalogue, registry
from statemachines.cli import app, run
from statemachines.drivers import protocol as drivers
from statemachines.pages import Property, parse_decisions, parse_properties, parse_terms

ROOT = Path(__file__).parents[2]
PROTOCOLS = tuple(name for name in registry.names() if (ROOT / "spec" / name).is_dir())
"""Ours; others may be installed beside them."""
SOURCES = ("statemachines", "sim", "spec", "reports", "tools")
PARTS = ("clauses.md", "properties.md", "decisions.md", "scenarios.md")

JUDGED = frozenset({"Always", "Stepwise", "Eventually", "Sometimes", "Observer"})
"""What the explorer's properties are made with; the first argument is the name."""

EVIDENCE = "Sometimes"
"""Says that something happens at all, against empty models: it need not be about a promise."""


PAGE = """# P

## Safety

- **S1 A title.** What is
  promised.
  - terms: `a`, `b`
  - carried by: XX-01,
    XX-2
  - checked: somewhere
  - also called: `rows`
- **no property** here
"""


def text_of(protocol: str, part: str) -> str:
    return catalogue.page(protocol, part).read_text(encoding="utf-8")


def sources_of(protocol: str) -> list[Path]:
    """Every file of ours that may speak of the protocol: its own folders, and those that are of no protocol."""
    others = set(PROTOCOLS) - {protocol}
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if not others & set(path.parts)]


def may_name(path: Path) -> bool:
    """To parse a file takes long, and most of them name no property."""
    return (
        re.search(rf"[\"'][SL][0-9]|\b(?:{'|'.join(sorted(JUDGED))})\(", path.read_text(encoding="utf-8")) is not None
    )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def beginning(node: ast.expr) -> str:
    """The constant text that a string begins with ("" where it is no string)."""
    if isinstance(node, ast.JoinedStr):
        return beginning(node.values[0]) if node.values else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def named_in_code(protocol: str) -> set[str]:
    """What code calls a property of shared subscriptions: S1 to L10 in any string, and the names the explorer has."""
    found = set()
    for path in sources_of(protocol):
        for node in ast.walk(tree_of(path)) if may_name(path) else ():
            if matched := re.match(r"[SL][0-9]+\b", beginning(node) if isinstance(node, ast.expr) else ""):
                found.add(matched[0])
            if isinstance(node, ast.Call) and node.args and called(node) in JUDGED - {EVIDENCE}:
                found.add(beginning(node.args[0]).strip())
    return found - {""}


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("part", PARTS)
def test_every_protocol_has_the_same_parts(protocol, part):
    assert text_of(protocol, part).startswith("# ")
    assert catalogue.properties(protocol)
    assert catalogue.decisions(protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_property_says_what_it_needs(protocol):
    for one in catalogue.properties(protocol).values():
        assert one.part in ("Safety", "Liveness"), one.id
        assert one.title, one.id
        assert one.text, one.id
        assert one.terms, one.id
        assert one.clauses, one.id
        assert one.checked, one.id


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_property_decision_or_term_is_there_twice(protocol):
    properties = [one.id for one in parse_properties(text_of(protocol, "properties.md"))]
    decisions = [one.id for one in parse_decisions(text_of(protocol, "decisions.md"))]
    texts = (text_of(protocol, "clauses.md"), text_of(protocol, "properties.md"))
    terms = [one.name for text in texts for one in parse_terms(text)]
    for found in (properties, decisions, terms):
        assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_property_cites_is_there(protocol):
    clauses, terms = catalogue.clauses(protocol), catalogue.terms(protocol)
    for one in catalogue.properties(protocol).values():
        assert set(one.clauses) <= set(clauses), one.id
        assert set(one.terms) <= set(terms), one.id


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_term_is_not_used_before_it_is_defined(protocol):
    """Within "Terms": whatever is set as code, and is a term, stands behind the place that defines it."""
    for part in ("clauses.md", "properties.md"):
        text = text_of(protocol, part)
        text = text[: text.index("\n|")] if "\n|" in text else text
        for term in parse_terms(text):
            assert text.index(f"`{term.name}`") == text.index(f"**`{term.name}`**") + 2, f"{part}: {term.name}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_symbol_of_a_clause_or_property_is_a_term(protocol):
    """A word with an underscore is a symbol: a term, or a message or table entry that "Terms" shows."""
    page = text_of(protocol, "clauses.md")
    shown = set(re.findall(r"`(\w+)", page[: page.index("- **" + registry.protocol(protocol).prefix)]))
    known = set(catalogue.terms(protocol)) | shown
    said = [one.text for one in catalogue.clauses(protocol).values()]
    said += [one.text for one in catalogue.properties(protocol).values()]
    used = {word for text in said for word in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text)}
    assert used - known == set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_decision_that_a_clause_or_a_program_cites_is_there(protocol):
    known = {*catalogue.decisions(protocol), *tool_decisions()}
    for part in PARTS:
        assert cited(text_of(protocol, part)) <= known, part
    for path in sources_of(protocol):
        assert cited(path.read_text(encoding="utf-8")) <= known | every_decision(), path


def cited(text: str) -> set[str]:
    return set(re.findall(r"\b(?:[A-Z]{2}-D|D-)[0-9]+\b", text))


def tool_decisions() -> set[str]:
    return {one.id for one in parse_decisions((ROOT / "spec" / "DECISIONS.md").read_text(encoding="utf-8"))}


def every_decision() -> set[str]:
    return {one for protocol in PROTOCOLS for one in catalogue.decisions(protocol)}


def test_a_number_of_a_decision_is_given_once():
    own = [one for protocol in PROTOCOLS for one in catalogue.decisions(protocol)]
    assert len(own) == len(set(own))
    assert tool_decisions().isdisjoint(own)
    assert len(tool_decisions()) > 5


def test_every_property_that_code_names_is_on_the_page_and_the_other_way_round():
    named = named_in_code("shared_subscriptions")
    assert {one for one in named if not says(one, names_of("shared_subscriptions"))} == set()
    assert set(catalogue.properties("shared_subscriptions")) - {one.split()[0] for one in named} == set()


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if "sim" in registry.protocol(name).areas])
def test_what_the_simulator_judges_is_on_the_page(protocol):
    assert set(registry.load_area(protocol, "sim").properties) <= names_of(protocol)


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if "spec" in registry.protocol(name).areas])
def test_what_the_explorer_judges_is_on_the_page(protocol):
    part = registry.load_area(protocol, "spec")
    for system in map(part.system, part.systems):
        judged = [one.name for one in system.properties if type(one).__name__ != EVIDENCE]
        judged += [one.name for one in part.obligations(system)]
        assert [name for name in judged if not says(name, names_of(protocol))] == [], system.name


def names_of(protocol: str) -> set[str]:
    """The ids of a protocol's properties, and what else tools call them."""
    properties = catalogue.properties(protocol)
    return {*properties, *(name for one in properties.values() for name in one.names)}


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if "reports" in registry.protocol(name).areas])
def test_every_check_of_the_reports_is_what_some_property_is_also_called(protocol):
    checks = {check.name for check in registry.load_area(protocol, "reports").checks}
    assert checks
    assert checks <= names_of(protocol)


def says(name: str, known: set[str]) -> bool:
    """By its name, by what it is also called, or by how that begins ("S10 consumer-1 leader-1", "session of ...")."""
    return any(name == one or name.startswith(f"{one} ") for one in known)


def test_the_promises_of_the_smaller_protocols_are_named_by_their_tests():
    for protocol in ("missed_samples", "cursor_recovery", "persistent_sessions", "sequence_windows"):
        tests = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / protocol).rglob("*.py")))
        assert [one for one in catalogue.properties(protocol) if not re.search(rf"\b{one}\b|_{one}_", tests)] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_clause_that_a_program_or_a_test_cites_is_on_the_page(protocol):
    prefix = registry.protocol(protocol).prefix
    known = set(catalogue.clauses(protocol))
    for path in [*sources_of(protocol), *sorted((ROOT / "tests").rglob("test_*.py"))]:
        found = {f"{prefix}-{number}" for number in re.findall(rf"\b{prefix}-([0-9]+)\b", path.read_text("utf-8"))}
        assert found <= known, path


def test_a_property_is_read_with_its_lines():
    assert list(parse_properties(PAGE)) == [
        Property("S1", "Safety", "A title", "What is promised.", ("a", "b"), ("XX-01", "XX-2"), "somewhere", ("rows",))
    ]


HOME = Path(__file__).parents[2]
AREAS = ("statemachines", "sim/statemachines_sim", "spec/statemachines_spec", "reports/statemachines_reports")
BESIDE = ("tests/testing", "tests/demo")
NEUTRAL_WORDS_PROTOCOLS = frozenset(registry.names())
MACHINES = frozenset(machine for one in registry.protocols() for machine in one.machines)
ROLES = frozenset(drivers.names())

HOUSE_WORDS = frozenset(
    {
        "source",  # a column of traces: the state before
        "group",  # an argument of Popen: of users
        "consumer",  # a column of foreign logs: who got a message
        "stream",  # another: where it stands
        "cache",  # an option of Numba's compiler
    }
)

EXPLORING = ("spec/statemachines_spec", "statemachines/commands/check.py")
"""Here a machine is none of the house words either."""
SIMULATING = ("sim/statemachines_sim", "statemachines/commands/simulation.py")
ONLY_ONE_USES = {"consumer", "borrower", "leader", "assignment", "subscription"}
"""Words of one protocol, which are here no part of a name or string."""
IN_EVERY_LINE = ("statemachines/kernel", "spec/statemachines_spec/explorer")
"""Here they stand in no line, be it of a docstring."""


def neutral_files():
    """Files in no folder, and of no name, of a protocol."""
    for area in (*AREAS, *BESIDE):
        for file in sorted((HOME / area).rglob("*.py")):
            if NEUTRAL_WORDS_PROTOCOLS.isdisjoint((*file.relative_to(HOME).parts, file.stem)):
                yield str(file.relative_to(HOME))
    yield from ("tests/clauses.py", "tests/layers.py")


def texts_of(tree):
    """Every string that stands for something: docstrings, and those below a constant, explain."""
    explaining = {
        statement.value
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in explaining:
            yield node.value


def words_of(tree):
    """Every name and every string, in its words."""
    for value in texts_of(tree):
        yield from re.findall("[a-z]+", value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.arg):
            found = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", "")
            yield from found.lower().split("_")


def names_in(file, text=""):
    """Protocols that the file names anywhere, machines and roles that are a string of it, words of one protocol.
    `text` stands in the file's place."""
    text = text or (HOME / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    texts = set(texts_of(tree))
    found = {*re.findall("|".join(NEUTRAL_WORDS_PROTOCOLS), text)}
    if file.startswith(AREAS):
        found |= {value.rpartition("/")[2] for value in texts} & (MACHINES | ROLES) - HOUSE_WORDS
    if file.startswith(EXPLORING):
        found |= {value.partition("-")[0] for value in texts} & MACHINES
    if file.startswith(SIMULATING):
        found |= ONLY_ONE_USES & {word.removesuffix("s") for word in words_of(tree)}
    if file.startswith(IN_EVERY_LINE):
        words = {word.lower().removesuffix("s") for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", text)}
        found |= (ONLY_ONE_USES | {"agent", "witness"}) & words
    return sorted(found)


FILES = tuple(neutral_files())


def test_a_neutral_file_names_nobody():
    assert {file: names for file in FILES if (names := names_in(file))} == {}


@pytest.mark.parametrize(
    ("file", "planted", "names"),
    [
        ("statemachines/kernel/turn.py", '"""What the Borrower does."""', ["borrower"]),
        ("statemachines/kernel/turn.py", "def find_leaders(): ...", ["leader"]),
        ("spec/statemachines_spec/explorer/tick.py", "# as an agent does", ["agent"]),
        ("spec/statemachines_spec/certificate_set.py", 'SIZE = {"leader-1": 2}', ["leader"]),
        ("sim/statemachines_sim/world.py", "consumers = 3", ["consumer"]),
        ("statemachines/show.py", "# of shared_subscriptions", ["shared_subscriptions"]),
        ("statemachines/show.py", 'NAME = "shared_subscriptions/borrower"', ["borrower", "shared_subscriptions"]),
    ],
)
def test_a_name_that_is_planted_in_a_neutral_file_is_found(file, planted, names):
    text = (HOME / file).read_text(encoding="utf-8")
    assert file in FILES
    assert names_in(file, text) == []
    assert names_in(file, f"{text}\n{planted}\n") == names


def test_there_are_neutral_files_in_every_area_and_the_words_are_real():
    for area in (*AREAS, *BESIDE, *EXPLORING, *SIMULATING):
        assert any(file.startswith(area) for file in FILES), area
    assert sum(file.startswith(AREAS[1]) for file in FILES) > 25
    assert sum(file.startswith(AREAS[2]) for file in FILES) > 30
    assert len(list((HOME / AREAS[2]).rglob("*.py"))) > sum(file.startswith(AREAS[2]) for file in FILES) + 15
    assert {"borrower", "leader"} <= MACHINES
    assert {"leader", "consumer", "publisher"} <= ROLES
    assert names_in("statemachines/shared_subscriptions/__init__.py") != []


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

"""The documentation site: its navigation has every page once, and pages are adapted to its Markdown."""

import re
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace

import msgspec
import pytest
import yaml

from statemachines import catalogue, cli, registry
from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.windows import KEYS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/documentation"))

from api_reference import PACKAGES, list_public_names  # noqa: E402
from command_reference import list_commands  # noqa: E402
from configuration_reference import load_type, read_sections, unit_of, write_page  # noqa: E402
from generated_pages import WRITERS  # noqa: E402
from message_reference import list_messages  # noqa: E402
from repository_pages import adapt_markdown, list_linked_files, list_pages  # noqa: E402
from site_hook import on_page_content, on_page_markdown  # noqa: E402
from specification_pages import list_protocols  # noqa: E402


def list_navigated(entry):
    """The pages of an entry of the navigation and of those below it."""
    if isinstance(entry, str):
        return [entry]
    below = entry.values() if isinstance(entry, dict) else entry
    return [page for one in below for page in list_navigated(one)]


NAVIGATED = list_navigated(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])


def test_the_navigation_names_every_page_once_and_no_other():
    assert {page: count for page, count in Counter(NAVIGATED).items() if count > 1} == {}
    assert sorted(NAVIGATED) == sorted([*list_pages(), *WRITERS])


def test_files_that_a_page_links_to_are_copied():
    assert list_linked_files("docs/architecture.md") == {"examples/log_shipper.py"}


@pytest.mark.parametrize(
    ("written", "adapted"),
    [
        ("Text:\n- one\n  - two", "Text:\n\n- one\n    - two"),
        ("- one\n  more\n\nText", "- one\n    more\n\nText"),
        ("    - code\n", "    - code"),
        ("```python shop.py\n- x\n```", '```python title="shop.py"\n- x\n```'),
        ("```python shop.py +\n```", '```python title="shop.py, continued"\n```'),
        ("- **SS-30** Text", '- <a id="ss-30"></a>**SS-30** Text'),
        ("- **S5 Title.** Text", '- <a id="s5"></a>**S5 Title.** Text'),
        ("- **OWES A title.** Text", '- <a id="owes"></a>**OWES A title.** Text'),
        ("- **Bold** text", "- **Bold** text"),
    ],
)
def test_lists_listings_and_anchors_are_adapted(written, adapted):
    assert adapt_markdown(written) == adapted + "\n"


@pytest.mark.parametrize("page", [page for page in WRITERS if page.endswith("matrix.md")])
def test_every_anchor_of_a_matrix_is_on_the_page_that_it_names(page):
    for name, anchor in set(re.findall(r"\]\(([\w./]*)#([\w-]+)\)", WRITERS[page]())):
        text = ((ROOT / page).parent / name).read_text(encoding="utf-8")
        assert f'<a id="{anchor}"></a>' in adapt_markdown(text), f"{name}#{anchor}"


SECTIONS = {one["type"]: one for one in read_sections()}
KEYS_WRITTEN = [(place, key) for place, one in SECTIONS.items() for key in one["keys"]]


OF_DRIVERS = ("statemachines.drivers.persistent_sessions.collector_requests:SessionBounds",)
"""What no protocol says, and a node is told."""


def list_declarations():
    """Every record of a protocol that consists of defaults and refuses values that cannot be: times and limits."""
    return [
        f"{module}:{name}"
        for module in sorted(sys.modules)
        if module.startswith("statemachines.") and module.split(".")[1] in registry.names()
        for name, one in vars(sys.modules[module]).items()
        if not name.endswith("Record")
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__module__ == module
        if any(
            "ConfigurationError" in getattr(one, check).__code__.co_names
            for check in ("__post_init__", "check")
            if hasattr(one, check)
        )
        if all(field.default is not msgspec.NODEFAULT for field in msgspec.structs.fields(one))
    ]


def test_every_declaration_of_configuration_is_in_the_reference():
    for protocol in registry.names():
        if not (ROOT / "statemachines" / protocol).is_dir():
            continue
        package = import_module(f"statemachines.{protocol}")
        for one in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(one.name)
    assert {*list_declarations(), *OF_DRIVERS} == set(SECTIONS)


@pytest.mark.parametrize("place", SECTIONS, ids=lambda place: place.rpartition(":")[2])
def test_every_key_of_configuration_is_in_the_reference(place):
    fields = msgspec.structs.fields(load_type(place))
    assert list(SECTIONS[place]["keys"]) == [field.name for field in fields]
    page = write_page()
    for field in fields:
        assert f"| `{field.name}` | {SECTIONS[place]['keys'][field.name][0]} | {unit_of(field.name)} |" in page


def test_the_keys_of_the_file_of_windows_are_in_the_reference():
    assert [key for key in KEYS if f"`{key}`" not in write_page()] == []


def find_refusal(place, key, value):
    """The error for the key of a configuration that has this value; None: the value is taken, or others refuse it."""
    try:
        made = load_type(place)(**{key: value})
        made.check() if hasattr(made, "check") else None
    except ConfigurationError as error:
        return error if error.key in (key, f"session_{key}") else None
    return None


@pytest.mark.parametrize(("place", "key"), KEYS_WRITTEN, ids=[key for _, key in KEYS_WRITTEN])
def test_the_bounds_in_the_reference_are_those_of_the_code(place, key):
    _, least, most, _ = SECTIONS[place]["keys"][key]
    default = next(field.default for field in msgspec.structs.fields(load_type(place)) if field.name == key)
    if isinstance(default, bool | str | msgspec.Struct):
        return
    below, at = find_refusal(place, key, least - 1), find_refusal(place, key, least)
    assert below is not None
    assert at is None or at.rule != below.rule
    if most:
        assert find_refusal(place, key, most + 1) is not None
        assert find_refusal(place, key, most) is None or "less than" in find_refusal(place, key, most).rule


def test_every_clause_that_the_reference_of_configuration_names_is_one():
    named_pages = [one.name for one in registry.protocols() if one.page]
    known = {clause for name in named_pages for clause in catalogue.clauses(name)}
    known |= {decision for name in named_pages for decision in catalogue.decisions(name)}
    named = {
        word.strip(";,:") for one in SECTIONS.values() for *_, clause in one["keys"].values() for word in clause.split()
    }
    assert {word for word in named if word[:3] in ("SS-", "PS-", "MS-", "SW-") if word not in known} == set()


def test_every_command_is_in_the_reference():
    names = [name for name, _ in list_commands()]
    assert {"gapless simulate", "gapless node leader", "gapless group declare"} <= set(names)
    page = WRITERS["reference/commands.md"]()
    assert [name for name in names[1:] if f"# {name}\n" not in page] == []


@pytest.mark.parametrize("page", PACKAGES)
def test_the_reference_of_an_interface_has_every_name_of_the_package(page):
    names = list_public_names(PACKAGES[page][1])
    assert names
    assert WRITERS[f"reference/api/{page}.md"]().count("::: ") == len(names)


@pytest.mark.parametrize("protocol", list_protocols())
def test_the_specification_has_every_machine_row_clause_and_property(protocol):
    machines, matrix = WRITERS[f"spec/{protocol}/machines.md"](), WRITERS[f"spec/{protocol}/matrix.md"]()
    assert machines.count("<svg class=") == len([*catalogue.machines(protocol), *catalogue.processes(protocol)])
    for fsm in catalogue.machines(protocol):
        part = machines.split(f"\n## {fsm.name}\n")[1].split("\n## ")[0]
        rows = [line for line in part.splitlines() if re.match(r"\| \d+ \| `", line)]
        assert len(rows) == len(fsm.lines)
    for one in catalogue.clauses(protocol):
        assert f"| [{one}](../{protocol}/clauses.md#{one.lower()}) | " in matrix
    for one in catalogue.properties(protocol):
        assert f"| [{one}](properties.md#{one.lower()}) | " in matrix


def test_the_reference_of_messages_has_what_an_operator_meets():
    found = list_messages()
    texts = {kind: " ".join(one.text for one in found if one.kind == kind) for kind in ("warning", "FrameError")}
    assert "waits for its store" in texts["warning"]
    assert "refused progress" in texts["warning"], "a text that stands in a name, too"
    assert "works on another store: {names}" in texts["FrameError"]


def test_a_listing_in_help_keeps_its_lines_there_and_on_the_site(capsys):
    page = WRITERS["reference/commands.md"]()
    assert "\b" not in page
    assert cli.run(["node", "mqtt", "-h"]) == cli.Exit.HELD
    node = capsys.readouterr().out
    assert "--node-listen 127.0.0.1:7601\n          --peers 127.0.0.1:7602\n" in node
    assert "    gapless campaign storm --trace out/on\n" in page


def test_a_cell_of_a_table_carries_the_heading_of_its_column_for_narrow_windows():
    rows = "<tr><td><code>a_ms</code></td><td class='n'>1</td></tr><tr><td>b</td><td></td></tr>"
    page = f"<table><thead><tr><th>key</th><th>a <em>unit</em></th></tr></thead><tbody>{rows}</tbody></table>"
    labelled = on_page_content(page + "<p>td</p>")
    assert re.findall(r'<td data-head="([^"]*)"', labelled) == ["key", "a unit"] * 2
    assert re.sub(r' data-head="[^"]*"', "", labelled) == page + "<p>td</p>"
    without_heads = "<table><tr><th></th></tr><tr><td>b</td></tr></table>"
    assert on_page_content(without_heads) == without_heads


@pytest.mark.parametrize(("name", "boost"), [("docs/operating.md", None), ("spec/DECISIONS.md", {"boost": 0.1})])
def test_a_search_shows_pages_that_say_how_before_lists_of_rules(name, boost):
    page = SimpleNamespace(meta={}, file=SimpleNamespace(src_uri=name))
    assert "# " in on_page_markdown((ROOT / name).read_text(encoding="utf-8"), page=page)
    assert page.meta.get("search") == boost

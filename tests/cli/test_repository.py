"""A protocol lies in one folder a layer, and no other folder is named after it.

Weight has a ceiling, and so have decisions of a protocol that drivers take in branches of their own: both fall.

Names and prose keep to the rules of the house; what does not yet is counted, and the count only falls.

The kill matrix: which mistakes there are, and which tests others stand in for.

The import contracts of `pyproject.toml` hold in a small tree of the same packages, and fail on planted imports.

No module imports itself by way of others, be it in a function or for its types alone (`make lint`).

Clauses are carried: each has tests named after it, and with the clause taken away one of them fails.

An archive of the environment: its interpreter runs where it is unpacked, and finds the libraries of tasks there.

A release: one version, and a wheel that holds the product alone.  `make release` tries it where nothing else is.
"""

import asyncio
import importlib.util
import json
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from importlib.metadata import PathDistribution, version
from pathlib import Path
from zipfile import ZipFile

import pytest
from clauses import named_in, tests_of
from long_cases import LONG_TESTS

from statemachines import __version__, catalogue, registry
from statemachines.cli import Exit, run
from statemachines.kernel import ConfigurationError
from statemachines.spark import environment_archive
from statemachines.spark.environment_archive import find_distributions, list_installed, write_environment

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = frozenset(name for name in registry.names() if (ROOT / "statemachines" / name).is_dir())
TOPS = ("benchmarks", "docs", "examples", "gapless", "reports", "sim", "spec", "statemachines", "tests", "tools")
MADE = {"__pycache__", "out"}
"""Folders of what programs make."""

PLACES = (
    r"statemachines/P(/properties)?",
    r"statemachines/drivers/P(/(postgres|sqlite))?",
    r"statemachines/(testing|demo|commands)/P",
    r"spec/P(/(certificates|models))?",
    r"spec/statemachines_spec/P",
    r"sim/scenarios/P",
    r"sim/statemachines_sim/P(/monitors)?",
    r"reports/statemachines_reports/P",
    r"tests/P(/(broken|exchanges|golden|interactions|steps|zenoh_scenes|drivers|sim|spec|testing))?",
)
"""Where a protocol P may lie; D-1345 to D-1347 say why the folders in them are there."""


def find_strays(root):
    """Folders below the root that are named after a protocol, hold a file, and are at no allowed place."""
    files = (file for top in TOPS for file in (root / top).rglob("*") if file.is_file())
    folders = {file.parent.relative_to(root) for file in files}
    named = {one for one in folders if not PROTOCOLS.isdisjoint(one.parts) and MADE.isdisjoint(one.parts)}
    return sorted(str(one) for one in named if not is_allowed(one))


def is_allowed(folder):
    place = "/".join("P" if part in PROTOCOLS else part for part in folder.parts)
    return any(re.fullmatch(allowed, place) for allowed in PLACES)


def test_a_protocol_lies_in_one_folder_a_layer():
    assert find_strays(ROOT) == []
    assert len(PROTOCOLS) >= 6
    for protocol in PROTOCOLS:
        assert all((ROOT / folder / protocol).is_dir() for folder in ("statemachines", "spec", "tests")), protocol


@pytest.mark.parametrize(
    "folder",
    [
        "tests/spec/cursor_recovery",
        "tests/cursor_recovery/reports",
        "statemachines/drivers/cursor_recovery/demo",
        "statemachines/wire/cursor_recovery",
        "tests/cursor_recovery/missed_samples",
        "tools/cursor_recovery",
    ],
)
def test_another_folder_is_found(tmp_path, folder):
    for one in ("tests/cursor_recovery/golden", "tests/spec/cursor_recovery/__pycache__", folder):
        (tmp_path / one).mkdir(parents=True, exist_ok=True)
        (tmp_path / one / "file.txt").touch()
    assert find_strays(tmp_path) == [folder]


SPEC = importlib.util.spec_from_file_location("weigh_tool", ROOT / "tools/weigh.py")
WEIGHT = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(WEIGHT)

DRIVERS = ("statemachines/drivers",)
LIMITS = {
    "cursor_recovery": 25,
    "missed_samples": 15,
    "mqtt_connections": 32,
    "persistent_sessions": 108,
    "sequence_windows": 16,
    "shared_subscriptions": 54,
}
MOST_BRANCHES = 250
MOST_EXCEPTIONS = 10


def find_decisions(protocol):
    return WEIGHT.leave_exceptions(protocol, WEIGHT.find_branches(protocol, DRIVERS))


@pytest.mark.parametrize("protocol", LIMITS)
def test_drivers_take_no_more_decisions_of_a_protocol_than_the_limit(protocol):
    """`python tools/weigh.py --branches PROTOCOL` lists them: what is new belongs into a table, or into a codec."""
    assert len(find_decisions(protocol)) <= LIMITS[protocol]


def test_the_limits_of_all_protocols_keep_to_one_for_the_whole():
    assert sum(LIMITS.values()) <= MOST_BRANCHES


@pytest.mark.parametrize("protocol", LIMITS)
def test_exceptions_are_few_and_each_is_a_function_with_such_a_branch_and_a_reason(protocol):
    excepted = WEIGHT.read_exceptions(protocol)
    assert len(excepted) <= MOST_EXCEPTIONS
    assert all(excepted.values())
    found = WEIGHT.find_branches(protocol, DRIVERS)
    assert excepted.keys() <= {f"{one.file.removeprefix('statemachines/drivers/')} {one.function}" for one in found}


def test_a_condition_that_names_a_field_is_seen_and_another_is_not(tmp_path, monkeypatch):
    machines, drivers = tmp_path / "statemachines" / "lock", tmp_path / "statemachines" / "drivers" / "lock"
    for folder in (machines, drivers):
        folder.mkdir(parents=True)
    (machines / "record.py").write_text("class Holder:\n    owner: str\n    id: int\n")
    (drivers / "node.py").write_text(
        "def give(one, owner):\n    if owner or one.owner:\n        return [x for x in owner if x.id]\n"
    )
    (drivers / "codec.py").write_text("def read(one):\n    return 1 if one.owner else 2\n")
    monkeypatch.setattr(WEIGHT, "ROOT", tmp_path)
    monkeypatch.setattr(
        WEIGHT,
        "list_files",
        lambda *under: [one.relative_to(tmp_path) for u in under for one in (tmp_path / u).rglob("*.py")],
    )
    (found,) = WEIGHT.find_branches("lock", DRIVERS)
    assert (Path(found.file).name, found.line, found.function, found.words) == ("node.py", 2, "give", ("owner",))


def test_weight_is_statements_and_lines_by_hand_and_golden_lines_stand_apart():
    source = '"""Doc."""\n\n\ndef f():\n    """Doc."""\n    x = 1; y = 2\n    return x\n'
    assert WEIGHT.weigh_text(Path("a/b.py"), source) == (4, 0)
    assert WEIGHT.weigh_text(Path("a/steps/c.txt"), "one\n    written\n\ntwo\n") == (2, 1)
    assert WEIGHT.weigh_text(Path("a/c.txt"), "one\n    two\n") == (2, 0)


def test_what_is_above_its_ceiling_is_said_and_the_ceiling_of_the_sum_only_falls():
    found = Counter({"tools": 5, "new": 1, "sum": 6})
    ceilings = {"ceiling": {"tools": 4, "sum": 5}, "allowance": {"an issue": 1}}
    said = ["new: 1, and its ceiling is 0", "tools: 5, and its ceiling is 4"]
    assert sorted(WEIGHT.find_excess(found, ceilings, ceilings)) == said
    before = {"ceiling": {"sum": 4}}
    assert WEIGHT.find_excess(found, ceilings, before)[-1] == "the ceiling of the sum rose from 4 to 5: it only falls"


VOICE_SPEC = importlib.util.spec_from_file_location("voice_tool", ROOT / "tools/voice.py")
VOICE = importlib.util.module_from_spec(VOICE_SPEC)
VOICE_SPEC.loader.exec_module(VOICE)


def test_no_public_function_method_or_file_is_named_by_a_bare_participle():
    public, others = VOICE.find_bare_names()
    assert public == []
    assert len(others) <= VOICE.read_limits()["bare private names"], others


def test_no_more_class_names_are_used_twice_than_the_limit_says():
    assert len(VOICE.find_shared_classes()) <= VOICE.read_limits()["shared classes"], VOICE.find_shared_classes()


def test_no_more_public_functions_begin_without_a_verb_than_the_limit_says():
    """`python tools/voice.py --verbless` names them all; a verb that is missing in `tools/verbs.txt` may be added."""
    found = VOICE.find_verbless()
    assert len(found) <= VOICE.read_limits()["functions without a verb"], "\n".join(found)


def test_a_function_without_a_verb_is_named_with_its_file(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text(
        "def table(): ...\ndef read_table(): ...\ndef _over(): ...\ndef is_over(): ...\nclass One:\n"
        "    @property\n    def rows(self): ...\n    def rows_of(self): ...\n"
        "    class Two:\n        async def rest(self): ...\n"
    )
    monkeypatch.setattr(VOICE, "ROOT", tmp_path)
    monkeypatch.setattr(VOICE, "list_files", lambda *patterns: sorted(tmp_path.glob("*.py")))
    assert VOICE.find_verbless() == ["one.py:1: table", "one.py:8: One.rows_of", "one.py:10: One.Two.rest"]


def test_no_page_has_more_long_sentences_and_riddles_than_its_limit():
    """A new page has none: `python tools/voice.py --write` gives it a limit, which then is to fall."""
    limits = VOICE.read_limits()
    assert {name: count for name, count in VOICE.count_prose().items() if count > limits.get(name, 0)} == {}


def test_the_counts_see_what_they_are_there_for(tmp_path, monkeypatch):
    (tmp_path / "held.py").write_text(
        "class One:\n    def told(self): ...\ndef tell():\n    def _gone(): ...\nclass Two: ...\n"
    )
    (tmp_path / "two.py").write_text("class Two: ...\n")
    monkeypatch.setattr(VOICE, "ROOT", tmp_path)
    monkeypatch.setattr(VOICE, "list_files", lambda *patterns: sorted(tmp_path.glob("*.py")))
    assert VOICE.find_bare_names() == (["held.py: the file", "held.py:2: told"], ["held.py:4: _gone"])
    assert VOICE.find_shared_classes() == ["Two"]
    assert VOICE.list_sentences("One two.\n\n```\nWhat code\n```\n| What | table |\n- Whoever asks. It is so.") == [
        "One two.", "- Whoever asks.", "It is so.",
    ]  # fmt: skip


@pytest.mark.parametrize("riddle", ["Who has it, has it.", "What is sent is told."])
def test_a_riddle_is_one(riddle):
    assert VOICE.RIDDLE.match(riddle)
    assert not VOICE.RIDDLE.match("A client reconnects.")


FOLDER = Path(__file__).parents[2] / "tools/kill_matrix"
SOURCE = '''def first(rows, at=1):
    """Of the rows."""
    try:
        rows.sort()
    except AttributeError:
        return at
    if at < 2 and rows:
        return rows[0]
    return None
'''


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield runpy.run_path(str(FOLDER / "__main__.py"), run_name="kill_matrix")
    sys.modules.pop("source_mistake", None)


@pytest.mark.parametrize(
    ("mistake", "line", "found"),
    [("negated", 7, None), ("left out", 4, 2), ("one more", 8, 2), ("returns nothing", 8, None), ("one more", 7, 1),
     ("compared otherwise", 7, 1)],
)  # fmt: skip
def test_a_mistake_changes_what_a_function_does(tool, tmp_path, mistake, line, found):
    file = tmp_path / "first.py"
    file.write_text(SOURCE)
    places = [one for one in tool["list_places"](file, file.name) if (one.line, one.mistake) == (line, mistake)]
    made = {}
    exec(sys.modules["source_mistake"].compile_with(str(file), SOURCE.encode(), places[0]), made)
    assert made["first"]([2, 3, 1]) == found


def test_what_is_kept_has_a_line_or_a_clause_of_its_own(tool):
    reached = {"a": {"f:1"}, "b": {"f:1", "f:2"}, "c": {"f:2", "f:3"}, "d": {"f:3"}, "e": {"f:3"}}
    clauses = {test: {"XX-1"} if test == "e" else set() for test in reached}
    kept = tool["keep_needed"](reached, clauses, {**dict.fromkeys(reached, 2), "b": 4}, {"a"})
    assert kept == {"a", "c", "e"}
    known = {"all": [*reached], "kept": [*kept]}
    assert tool["spare"](known, [{"by": "d"}, {"by": ""}]) == ["b"]


PROJECT = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
LINTER = tomllib.loads(PROJECT)["tool"]["importlinter"]
CONTRACTS = tuple(one["name"] for one in LINTER["contracts"])
(PURE,) = (one["source_modules"] for one in LINTER["contracts"] if one["type"] == "forbidden")
IMPORT_CONTRACTS_PROTOCOLS = tuple(name.removeprefix("Rooms of ") for name in CONTRACTS if name.startswith("Rooms of "))
LINT = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"

PLANTED = {
    "statemachines.kernel.low": ["statemachines.drivers"],
    "statemachines.wire.codec": ["statemachines.show"],
    "statemachines_spec.walker": ["statemachines_sim"],
    **{f"statemachines_sim.world_{name}": [f"statemachines_sim.{name}"] for name in IMPORT_CONTRACTS_PROTOCOLS},
    **{f"statemachines.drivers.of_{name}": [f"statemachines.{name}"] for name in IMPORT_CONTRACTS_PROTOCOLS},
    "statemachines.cursor_recovery.reader": ["statemachines.missed_samples"],
    "statemachines.mqtt_codec.frame": ["statemachines_sim"],
    **{f"{module}.impure": ["time", "asyncio"] for module in PURE},
    "statemachines.trace.low": ["statemachines.trace.sub.one"],
    "statemachines.trace.sub.one": ["statemachines.trace.low"],
}
"""Module -> what it imports, and must not."""


def list_modules():
    """The packages that the contracts name, and the rooms of each protocol."""
    yield from LINTER["root_packages"]
    for one in LINTER["contracts"]:
        if one["type"] == "layers":
            for layer in one["layers"]:
                yield from (name.strip("() ") for name in layer.split("|"))
    yield from PURE
    for area in ("statemachines.drivers", "statemachines.demo", "statemachines_sim", "statemachines_spec"):
        yield from (f"{area}.{name}" for name in IMPORT_CONTRACTS_PROTOCOLS)


def run_linter(folder, planted):
    """The code and what it says of a tree in which the modules of `planted` stand as well."""
    for module in (*list_modules(), *planted):
        path = folder.joinpath(*module.split("."))
        path.mkdir(parents=True, exist_ok=True)
        for one in (path, *path.parents):
            if one == folder:
                break
            (one / "__init__.py").touch()
        imports = "".join(f"import {name}\n" for name in planted.get(module, ()))
        if imports:
            (path / "__init__.py").write_text(imports)
    alert = 'type = "protected"\nunmatched_ignore_imports_alerting = "none"'
    (folder / "pyproject.toml").write_text(PROJECT.replace('type = "protected"', alert))
    done = subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    return run_linter(tmp_path_factory.mktemp("planted"), PLANTED)


def test_the_small_tree_keeps_every_contract(tmp_path):
    code, said = run_linter(tmp_path, {})
    assert code == 0, said
    assert [name for name in CONTRACTS if f"{name} KEPT" in said] == list(CONTRACTS)


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_fails_on_what_is_planted(broken, name):
    code, said = broken
    assert code == 1, said
    assert f"{name} BROKEN" in said


@pytest.mark.parametrize("module", [one for one in PLANTED if not one.startswith("statemachines.trace")])
def test_what_is_planted_is_named(broken, module):
    assert any(f"{module} -> {name} " in broken[1] for name in PLANTED[module]), broken[1]


IMPORT_CIRCLES_LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
(CONTRACT,) = (one for one in IMPORT_CIRCLES_LINTER["contracts"] if one["type"] == "acyclic_siblings")
CONFIG = """
[importlinter]
root_package = planted
[importlinter:contract:circles]
name = No circles
type = acyclic_siblings
ancestors = planted
"""
IMPORT_CIRCLES_LINT = (
    "from importlinter.cli import lint_imports; raise SystemExit(lint_imports('lint.ini', no_cache=True))"
)
OF_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.low.one import One\n"
IN_FUNCTION = "def find():\n    from planted.low.one import One\n"


def test_no_package_and_no_import_is_left_out():
    assert sorted(CONTRACT["ancestors"]) == sorted(IMPORT_CIRCLES_LINTER["root_packages"])
    assert "ignore_imports" not in CONTRACT


@pytest.mark.parametrize(("two", "code"), [("", 0), (OF_TYPES, 1), (IN_FUNCTION, 1)])
def test_a_circle_is_found(tmp_path, two, code):
    for name, text in {
        "__init__.py": "", "low/__init__.py": "", "low/one.py": "from planted.high import Two\nclass One: ...\n",
        "high.py": f"{two}class Two: ...\n",
    }.items():  # fmt: skip
        path = tmp_path / "planted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "lint.ini").write_text(CONFIG)
    done = subprocess.run([sys.executable, "-c", IMPORT_CIRCLES_LINT], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert (".low -> .high" in done.stdout or ".high -> .low" in done.stdout) == bool(code)


CLAUSES_ROOT = Path(__file__).parents[2]
SCRIPT = CLAUSES_ROOT / "tools" / "clauses.py"
CLAUSES_PROTOCOLS = (
    "cursor_recovery", "missed_samples", "mqtt_connections", "persistent_sessions", "sequence_windows",
    "shared_subscriptions",
)  # fmt: skip
SLICE = "2/160"
"""What of it `make test` repeats; `make clauses` asks them all, in half a minute."""


def run_of_clauses(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, cwd=CLAUSES_ROOT)


@pytest.mark.parametrize("protocol", CLAUSES_PROTOCOLS)
def test_every_clause_has_a_test_that_is_named_after_it(protocol):
    modelled = [clause.id for clause in catalogue.clauses(protocol).values() if clause.is_modelled]
    assert [clause for clause in modelled if not tests_of(clause)] == []
    assert len(modelled) > 20


def test_a_slice_of_the_clauses_is_carried():
    done = run_of_clauses("--slice", SLICE)
    assert "not carried" not in done.stderr, done.stderr  # a test that was ended may log how its coroutines close
    assert done.returncode == 0, done.stdout
    assert "0 clauses cannot be asked" in done.stdout


def test_what_never_ends_is_ended_though_a_callback_of_its_loop_keeps_the_error():
    spec = importlib.util.spec_from_file_location("clauses_tool", SCRIPT)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    async def wait_for_ever():
        def spin():
            while True:
                pass

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        asyncio.get_running_loop().call_soon(spin)
        await asyncio.Event().wait()

    with pytest.raises(tool.TooLong), tool.limit_time(0.1):
        asyncio.run(wait_for_ever())


def test_a_clause_that_no_test_carries_is_listed(tmp_path):
    """A test that is named after a clause, and passes without it."""
    (tmp_path / "missed_samples").mkdir()
    (tmp_path / "missed_samples" / "test_weak.py").write_text("def test_MS_03_it_is_there():\n    assert True\n")
    done = run_of_clauses("--protocol", "missed_samples", "--tests", str(tmp_path), "MS-03", "MS-04")
    assert done.returncode == 1
    assert "MS-03 (rows) not carried: 1 tests pass without it" in done.stderr
    assert "MS-04 not carried: no test is named after it" in done.stderr
    assert done.stdout.startswith("0 of 1 mutants are found")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["XY-999"], "error: XY-999: no clause of"),
        (["--protocol", "nothing"], "error: protocol = 'nothing': unknown"),
        (["--slice", "3/2"], "expected FIRST/OF"),
    ],
)
def test_a_name_that_is_none_is_told(arguments, said):
    done = run_of_clauses(*arguments)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("name", "clauses"),
    [
        ("test_SS_80_one", ("SS-80",)),
        ("test_ss14_ss19_two", ("SS-14", "SS-19")),
        ("test_CR_33_CR_34_both", ("CR-33", "CR-34")),
        ("test_class_12_is_no_clause", ()),
        ("test_SS_999_is_not_on_the_page", ()),
    ],
)
def test_the_clauses_of_a_test_are_read_from_its_name(name, clauses):
    assert named_in(name) == clauses


def test_a_range_stands_for_all_clauses_between():
    assert named_in("test_SS_100_to_SS_103_whatever") == ("SS-100", "SS-101", "SS-102", "SS-103")


SHOW = """
import json, sys
import msgspec, immutables, json.decoder
print(json.dumps([list(sys.version_info[:3]), sys.prefix, msgspec.__file__]))
"""


def test_the_interpreter_of_an_archive_runs_where_it_is_unpacked(tmp_path, monkeypatch):
    """With few libraries: the whole is for a cluster, which has a test of its own."""
    monkeypatch.setattr(environment_archive, "ROOTS", ("immutables",))
    monkeypatch.setattr(environment_archive, "LEVEL", 0)
    content = write_environment(tmp_path / "small.tgz", ["Msgspec"])
    assert sorted(content.versions) == ["immutables", "msgspec"]
    there = tmp_path / "elsewhere"
    with tarfile.open(tmp_path / "small.tgz") as archive:
        archive.extractall(there, filter="data")
        assert len(archive.getnames()) == len({*archive.getnames()}) == content.files
    given = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([there / "bin" / "python", "-c", SHOW], env=given, capture_output=True, text=True, check=True)
    version, prefix, place = json.loads(done.stdout)
    assert version == list(sys.version_info[:3])
    assert prefix == str(there)
    assert place.startswith(str(there / "packages"))
    lacking = subprocess.run([there / "bin" / "python", "-c", "import pytest"], env=given, capture_output=True)
    assert b"No module named 'pytest'" in lacking.stderr


def test_spark_is_left_to_the_executors():
    found = find_distributions(["pyspark"])
    assert sorted(found) == ["py4j", "pyspark"]
    places = [place for _, place in list_installed(found["pyspark"])]
    assert "packages/pyspark/daemon.py" in places
    assert not [place for place in places if place.endswith(".jar") and "/jars/" in place]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("environment.tar",), "must end in .tar.gz or .tgz"),
        ((".tgz",), "must end in"),
        (("e.tgz", "--with", "no-such-thing"), "'no-such-thing': is not installed here"),
        (("e.tgz", "--with", "gapless"), "is installed as a link to its folder"),
    ],
)
def test_what_cannot_be_packed_is_named(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment_archive, "ROOTS", ())
    assert run(["env-archive", *arguments]) == Exit.USAGE
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_folder_is_refused(tmp_path):
    (tmp_path / "METADATA").write_text("Name: mine\n")
    (tmp_path / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    with pytest.raises(ConfigurationError, match="mine"):
        list(list_installed(PathDistribution(tmp_path)))


RELEASE_SPEC = importlib.util.spec_from_file_location("release_tool", ROOT / "tools/release.py")
RELEASE = importlib.util.module_from_spec(RELEASE_SPEC)
RELEASE_SPEC.loader.exec_module(RELEASE)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return RELEASE.build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_the_product_and_no_benchmark_test_or_tool(built, tmp_path):
    _, wheel = built
    assert RELEASE.list_strangers(wheel) == []
    with ZipFile(wheel) as files:
        names = set(files.namelist())
    for name in (
        "statemachines/py.typed",
        "statemachines/shared_subscriptions/clauses.md",
        "statemachines_sim/scenarios/shared_subscriptions/storm.toml",
        "statemachines_spec/explorer/explore.py",
        "statemachines_reports/page.py",
    ):
        assert name in names
    stranger = tmp_path / "stranger.whl"
    with ZipFile(stranger, "w") as files:
        files.writestr("statemachines/cli.py", "")
        files.writestr("gapless-0.1.0.dist-info/METADATA", "")
        files.writestr("statemachines_bench/__init__.py", "")
        files.writestr("tests/test_cli.py", "")
    assert RELEASE.list_strangers(stranger) == ["statemachines_bench/__init__.py", "tests/test_cli.py"]
    assert RELEASE.list_differences(stranger, stranger) == []
    assert "tests/test_cli.py" in RELEASE.list_differences(stranger, wheel)


def test_the_source_distribution_has_the_tests_and_nothing_that_was_made(built):
    with tarfile.open(built[0]) as files:
        names = [name.partition("/")[2] for name in files.getnames()]
    assert {"pyproject.toml", "requirements.lock", "tests/cli/test_repository.py", "tools/release.py"} <= set(names)
    assert [name for name in names if name.startswith((".venv", "out/", "dist/", "examples/out"))] == []


def test_there_is_one_version(built):
    assert set(RELEASE.read_versions(*built).values()) == {__version__}
    assert version("gapless") == __version__


def test_what_is_named_as_long_is_there():
    def is_there(test):
        file, _, name = test.partition("::")
        return f"def {name.rpartition('::')[2]}(" in (ROOT / file).read_text() or name.startswith("Test")

    assert all(is_there(test) for test in LONG_TESTS)

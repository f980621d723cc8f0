"""Every certificate of the repository rests on the code that is there, and says what exploring again comes to.

Pages to step through: a system with its counterexample, and a machine; a browser clicks through them.

One author a property: explorer, simulator and Hypothesis judge by the observers of the protocol.

The programs that the pages of the specification show run as they stand there.
"""

import ast
import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import count
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from symmetric_system import never_takes, toy

from statemachines import catalogue, cli
from statemachines.commands.certificates import RENEW
from statemachines.step_page import BEYOND, NOWHERE, write_step_page
from statemachines_reports.draw_machine import make_page as machine_page
from statemachines_spec import certificate_set, certificates, explore
from statemachines_spec import fingerprint as fingerprints
from statemachines_spec.certificate_set import SMALL, folder_of, is_stale, list_certificates, recheck
from statemachines_spec.fingerprint import fingerprint, modules_of
from statemachines_spec.state_page import make_page

ROOT = Path(__file__).parents[2]
COUNTED = re.compile(r"(\d+) certificates[^.]*?(\d+) of them small")


def list_counted():
    """(protocol, system, what its row says beside) of the tables of systems."""
    found = []
    for protocol in certificate_set.protocols():
        page = (ROOT / f"spec/{protocol}/systems.md").read_text(encoding="utf-8")
        for table in re.findall(r"^\| system \| about \| states.*\n(?:\|.*\n)+", page, re.MULTILINE):
            for row in table.splitlines()[2:]:
                name, _, *counts = row.strip("| ").split(" | ")
                found.append((protocol, name.strip("`"), ", ".join(counts)))
    return found


@pytest.mark.parametrize(("protocol", "system", "said"), list_counted())
def test_the_pages_count_the_states_that_certificates_count(protocol, system, said):
    places = [folder_of(protocol) / f"{system}-{size}.json" for size in ("small", "ci")]
    first, second = (count_states(certificates.read(one)) if one.exists() else "-" for one in places)
    assert said in (f"{first}, {second}", first)


def count_states(one):
    standing = f" (standing for {one.stand_for:,})" if one.stand_for else ""
    return f"{one.states:,}{standing}".replace(",", " ")


@pytest.mark.parametrize("protocol", certificate_set.protocols())
def test_none_is_stale_and_none_is_missing(protocol):
    """A small one whose code has changed is explored again, so that the message says whether it is still true."""
    stale = [one for one in list_certificates((protocol,)) if is_stale(one)]
    said = [
        f"{one.name}: {again_in_words(one) if one.small else 'too large to be explored again here'}" for one in stale
    ]
    assert said == [], f"write them anew: {RENEW}"


def again_in_words(one):
    again = recheck(one)
    return "; ".join(filter(None, (*again.differences, again.broken))) or "still true"


def test_the_documents_say_how_many_there_are():
    listed = list_certificates()
    counts = (len(listed), sum(one.states <= SMALL for one in listed))
    said = {
        path.name: tuple(map(int, found))
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "spec" / "README.md")
        for found in COUNTED.findall(path.read_text(encoding="utf-8"))
    }
    assert "walker.md" in said
    assert said == dict.fromkeys(said, counts)


# -- fingerprints ---------------------------------------------------------------------------------------------------

SOURCE = {
    "machine": '''"""What it is."""
from . import limits, rules
from .rules import is_low as low
from .names import SPEAKER
import msgspec

class Record(msgspec.Struct):
    "A record."
    n: int = 0
    """How many."""

def step(record, event: object, *, told=None) -> Record:
    """The next one."""
    from .late import stop_after
    found = record.n + 1  # one more
    assert not [SPEAKER for SPEAKER in ()]
    if rules.is_low(record) and not low(record):
        return stop_after(record, found)
    return SPEAKER.take(Record(n=found), most=limits.MOST)
''',
    "limits": "MOST = 3\nUNUSED = 4\n",
    "quiet": "print\n",
    "rules": """from . import quiet
from .limits import MOST as TOP

def is_low(record):
    return record.n < TOP

def is_odd(n):
    return n % 2
""",
    "late": "from .rules import is_low\n\ndef stop_after(record, n):\n    return n if is_low(record) else None\n",
    "names": "from .speakers import SPEAKER\n\nprint\n",
    "speakers": "class Speaker:\n    def take(self, record, most):\n        return record\n\nSPEAKER = Speaker()\n",
}
"""A package: module -> source."""

CHANGES = r"""
machine: not low => low
machine: record.n + 1 => record.n + 2
machine: n: int = 0 => n: int = 1
machine: n: int => n: float
machine: told=None => told=0
machine: Record => Entry
machine: record.n => record.k
machine: most= => least=
machine: import msgspec => import other as msgspec
machine: rules.is_low( => rules.is_odd(
machine: limits.MOST => limits.UNUSED
limits: MOST = 3 => MOST = 4
rules: MOST as TOP => UNUSED as TOP
rules: record.n < => record.n <=
late: else None => else 0
names: \nprint => \nprint()
quiet: print => print()
speakers: return record => return most
machine: def step => def other(n):\n    return step(n)\n\ndef step
speakers: Speaker => Voice
speakers: take => hear
speakers: record, most => most, record
"""
"""What a package does differently after it: in a module, what stands there => what then stands there."""
RENAMES = r"""
*: is_low => is_lower
*: step => move
*: MOST => BOUND
*: SPEAKER => TELLER
*: found => there
machine: n=found => \n        n=found
rules: TOP => MOST_OF_ALL
*: stop_after => end_after
limits: UNUSED = 4 => UNUSED = 5
rules: n % 2 => n % 3
limits: MOST = 3\n => MOST = 3\n\n\n
machine: What it is. => What it was.
machine: "A record." => "Another."
machine: How many. => So many.
machine: # one more => # two
machine: event: object => event: int
machine: -> Record => -> None
machine: rules.is_low(record) and => (\n        rules.is_low(record)) and
machine: import msgspec => import msgspec, sys
"""
"""What leaves it as it was; `*`: in all modules."""
RULES = "\ndef stop_after(record, n):\n    return n if is_low(record) else None\n"
MOVES = {
    "a function": {"late": "from .rules import is_low, stop_after\n", "rules": SOURCE["rules"] + RULES},
    "a class": {
        "speakers": "from .voices import Speaker\n\nSPEAKER = Speaker()\n",
        "voices": SOURCE["speakers"].partition("\nSPEAKER")[0],
    },
    "a module": {"names": "from .people import SPEAKER\n\nprint\n", "people": SOURCE["speakers"], "speakers": ""},
}
"""Modules after something was moved from one to another."""


@pytest.fixture
def fingerprint_of(tmp_path, monkeypatch):
    """The fingerprint of a package with these modules."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(fingerprints, "ENGINE", fingerprints.Place("statemachines_spec.bug", "swap"))
    numbers = count()

    def find(sources, bounds="1"):
        folder = tmp_path / f"somebodys_{next(numbers)}"
        folder.mkdir()
        for module, source in {"__init__": "", **sources}.items():
            (folder / f"{module}.py").write_text(source)
        return fingerprint(f"{folder.name}.machine", {"most": bounds})

    return find


def test_what_makes_a_difference_makes_it_and_nothing_else(fingerprint_of):
    before = fingerprint_of(SOURCE)
    assert fingerprint_of(SOURCE, bounds="2") != before
    told = {}
    changes, renames = (text.strip("\n").splitlines() for text in (CHANGES, RENAMES))
    for line in (*changes, *renames):
        module, _, change = line.replace("\\n", "\n").partition(": ")
        old, new = change.split(" => ")
        some = SOURCE if module == "*" else (module,)
        assert any(old in SOURCE[one] for one in some)
        changed = {one: SOURCE[one].replace(old, new) for one in some}
        told[line] = fingerprint_of({**SOURCE, **changed}) != before
    assert told == {**dict.fromkeys(changes, True), **dict.fromkeys(renames, False)}
    assert [name for name, moved in MOVES.items() if fingerprint_of({**SOURCE, **moved}) != before] == []


@pytest.mark.long
def test_it_is_the_same_in_every_process():
    code = "from statemachines_spec.fingerprint import fingerprint; print(fingerprint('{}', {{'b': '1', 'a': '2'}}))"
    command = (sys.executable, "-c", code.format("statemachines_spec.missed_samples.systems"))
    said = {subprocess.check_output(command, env={"PYTHONHASHSEED": seed}, cwd=ROOT) for seed in ("1",)}
    assert said == {f"{fingerprint('statemachines_spec.missed_samples.systems', {'a': '2', 'b': '1'})}\n".encode()}


# -- exploring again ------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    """A small certificate, in a folder of its own."""
    (one,) = (one for one in list_certificates(("sequence_windows",)) if one.system == "turning")
    path = tmp_path / one.path.name
    shutil.copy(one.path, path)
    return replace(one, path=path)


def rewritten(kept, **fields):
    path = kept.path
    path.write_bytes(msgspec.json.encode(replace(certificates.read(path), **fields)))


def test_one_that_is_not_true_is_told_and_written_anew(kept):
    states = recheck(kept).states
    rewritten(kept, states=states + 1, always={"no-error": True, "GONE": True}, fingerprint="")
    assert is_stale(kept)
    again = recheck(kept)
    assert not again.agrees
    assert again.differences[0] == f"states: the certificate says {states + 1}, this exploration {states}"
    assert again.differences[1].startswith("always of GONE, ")
    assert certificates.read(kept.path).states == states + 1
    assert recheck(kept, write=True).written
    assert recheck(kept).agrees
    assert not is_stale(kept)


def test_one_that_is_missing_is_stale_and_is_written(kept):
    kept.path.unlink()
    missing = replace(kept, states=0)
    assert is_stale(missing)
    assert recheck(missing, write=True).written
    assert recheck(kept).agrees


def test_one_of_a_system_that_is_gone_is_stale_and_cannot_be_explored(kept):
    rewritten(kept, system="gone")
    gone = replace(kept, system="gone")
    assert is_stale(gone)
    assert "cannot be explored: system = 'gone': unknown" in recheck(gone, write=True).broken


def test_what_breaks_gets_no_certificate(kept, monkeypatch):
    from statemachines_spec.sequence_windows.systems import WindowHost

    monkeypatch.setattr(WindowHost, "react", lambda self, local, envelope, watch=None: 1 / 0)
    before = kept.path.read_bytes()
    again = recheck(kept, write=True)
    assert (again.written, again.broken.startswith("VIOLATED no-error")) == (False, True)
    assert kept.path.read_bytes() == before


def test_the_command_says_what_differs_and_how_to_write_it_anew(kept, monkeypatch, capsys):
    monkeypatch.setattr(certificate_set, "list_certificates", lambda names=(): (kept,))
    rewritten(kept, edges="0", fingerprint="")
    assert cli.run(("check", "sequence_windows", "--certificates", "--stale")) == 1
    out = capsys.readouterr().out
    assert "sequence_windows/turning-small: DIFFERS" in out
    assert "  edges: the certificate says 0, this exploration " in out
    assert out.endswith(f"if the differences are right: {RENEW} sequence_windows\n")
    assert cli.run(("check", "--certificates", "--stale", "--renew")) == 0
    assert "1 written anew, 0 wrong" in capsys.readouterr().out
    assert cli.run(("check", "--certificates", "--stale")) == 0
    assert "1 certificates, 0 explored again" in capsys.readouterr().out
    assert cli.run(("check", "--renew")) == 2


@pytest.mark.long
def test_processes_share_the_work(kept):
    rewritten(kept, fingerprint="")
    again = tuple(certificate_set.recheck_all((kept, kept), write=True, jobs=2))
    assert [one.written for one in again] == [True, True]
    assert not is_stale(kept)


@pytest.mark.long
def test_a_system_that_comes_from_a_module_of_its_own_rests_on_that_module():
    """What is added there makes no certificate of the other systems stale."""
    apart = "statemachines_spec.shared_subscriptions.unreachable"
    made = certificates.find_system("shared_subscriptions", "leader-to-member", size="small", variant="settled")
    kept = certificates.read(folder_of("shared_subscriptions") / "leader-to-member-small.json")
    words = {**made.describe_bounds(), "system": kept.system, "size": kept.size, "variant": kept.variant}
    assert certificates.fingerprint_now(kept) == fingerprint(apart, words)
    others = certificates.read(folder_of("shared_subscriptions") / "pause-small.json")
    read = set(modules_of("statemachines_spec.shared_subscriptions.timed"))
    assert {"statemachines.kernel.fsm", "statemachines_spec.explorer.purity"} <= read - {apart} == read
    assert not certificates.is_stale(others)


SYSTEM = toy({"in_flight": 2}, properties=(never_takes(20),))


def data_of(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="', text), "nothing is loaded from elsewhere"
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text).group(1))


@pytest.fixture(scope="module")
def broken():
    return explore(SYSTEM, engine="plain").path


def test_a_page_is_bounded_and_says_so(broken, tmp_path):
    page = make_page(SYSTEM, broken, ("VIOLATED", "never 20: a"), states_max=len(broken.legs) + 5)
    assert len(page.states) == len(broken.legs) + 5
    assert page.about.endswith(f"holds the nearest {len(page.states)} states.")
    targets = {move.target for state in page.states for move in state.moves}
    assert BEYOND in targets
    assert max(targets) < len(page.states)
    small = toy({"in_flight": 1}, properties=())
    whole = make_page(small, None, ("HELD", "everything"), states_max=100_000)
    assert whole.about.endswith(f"holds all {len(whole.states):,} states.")
    assert whole.path == []
    result = explore(small, engine="plain")
    assert len(whole.states) == result.states
    assert not any(move.target == BEYOND for state in whole.states for move in state.moves)


def test_the_command_writes_a_page_and_says_what_is_on_it(tmp_path, capsys):
    html = tmp_path / "page.html"
    words = ["explore", "sequence_windows", "--system", "rotation", "--engine", "plain", "--html", str(html)]
    assert cli.run([*words, "--states-max", "1000", "--shown-max", "50"]) == cli.Exit.INCONCLUSIVE
    assert "INCONCLUSIVE nothing broke in the first " in capsys.readouterr().out
    data = data_of(html)
    assert len(data["states"]) == 50
    assert data["name"] == "rotation"
    assert all(part < len(data["texts"]) for state in data["states"] for part in state["parts"])
    assert all(move[1] < len(data["events"]) for state in data["states"] for move in state["moves"])
    assert {move[2] for state in data["states"] for move in state["moves"]} <= {BEYOND, NOWHERE, *range(50)}
    assert cli.run(["explore", "sequence_windows", "--html", str(html)]) == cli.Exit.USAGE
    assert "a page is of one system; choose one: rotation, " in capsys.readouterr().err
    assert cli.run(["show", "--html", str(html)]) == cli.Exit.USAGE


def test_no_text_of_a_system_ends_the_data_of_its_page(tmp_path):
    from msgspec.structs import replace

    page = replace(machine_page(catalogue.machine("shared_subscriptions/stream"), ""), name="</script><b>")
    write_step_page(tmp_path / "m.html", page)
    assert data_of(tmp_path / "m.html")["name"] == "</script><b>"


PROTOCOLS = (
    "cursor_recovery",
    "missed_samples",
    "mqtt_connections",
    "persistent_sessions",
    "sequence_windows",
    "shared_subscriptions",
)
EXCEPTIONS = tomllib.loads((ROOT / "tools/properties.toml").read_text())
METHODS = ("driven", "explored", "simulated")
JUDGES = ("report_broken", "BrokenProperty")
"""What says that a property does not hold."""


def list_observed(protocol):
    """The properties that its observers judge."""
    return importlib.import_module(f"statemachines.{protocol}.properties").PROPERTIES


def find_shared(page):
    """Properties of a page that two or more methods check."""
    for found in re.finditer(r"^- \*\*([A-Z]+) .*?(?=^- \*\*|^## |\Z)", page, re.MULTILINE | re.DOTALL):
        checked = re.search(r"^  - checked: (.*)$", found[0], re.MULTILINE)
        if checked and sum(method in checked[1] for method in METHODS) > 1:
            yield found[1]


def find_literals(code, names):
    """Lines of code that say of one of these properties, by its name, that it does not hold."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in JUDGES and node.args[0].value in names:
                yield f"{node.lineno}: {node.args[0].value}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_property_that_two_methods_check_has_one_author(protocol):
    shared = set(find_shared((ROOT / "spec" / protocol / "properties.md").read_text()))
    own = EXCEPTIONS.get(protocol, {})
    assert shared - set(list_observed(protocol)) - set(own) == set()
    assert set(own) <= shared
    assert len(own) <= 5
    assert all(len(reason) > 40 for reason in own.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_observers_say_that_such_a_property_does_not_hold(protocol):
    folders = ("sim/statemachines_sim", "spec/statemachines_spec", "statemachines/testing")
    files = [file for folder in folders for file in sorted((ROOT / folder / protocol).rglob("*.py"))]
    names = set(list_observed(protocol))
    assert files
    assert [f"{file.name}:{one}" for file in files for one in find_literals(file.read_text(), names)] == []


def test_a_second_author_is_found():
    page = "- **ONCE Once.** Not twice.\n  - checked: driven, explored\n- **LATE Late.** No.\n  - checked: driven\n"
    assert list(find_shared(page)) == ["ONCE"]
    code = 'judge.report_broken("ONCE", "again")\nBrokenProperty("ONCE", "")\nBrokenProperty("LATE", "")\n'
    assert list(find_literals(code, {"ONCE"})) == ["1: ONCE", "2: ONCE"]


PAGE = Path(__file__).parents[2] / "docs" / "systems.md"


def test_the_system_that_the_page_declares_is_explored():
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [one for one in programs if "explore(" in one]
    space = {}
    exec(compile(program, str(PAGE), "exec"), space)
    assert space["result"].states > 1_000

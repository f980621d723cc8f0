"""Every certificate of the repository rests on the code that is there, and says what exploring again comes to."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from statemachines import cli
from statemachines.commands.certificates import RENEW
from statemachines_spec import certificate_set, certificates
from statemachines_spec.certificate_set import SMALL, folder_of, is_stale, list_certificates, recheck
from statemachines_spec.fingerprint import digest_of, fingerprint, modules_of

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

SOURCE = '''"""What it is."""
from package import limits

class Record:
    "A record."
    n: int = 0
    """How many."""

def is_low(record, event):
    """Whether it is."""
    return record.n < limits.MOST  # at most
'''


CHANGES = {
    "a guard": ("record.n <", "record.n <="),
    "a name": ("is_low", "is_lower"),
    "a default": ("int = 0", "int = 1"),
    "a bound": ("limits.MOST", "limits.MOST + 1"),
    "an import": ("import limits", "import limits, machine"),
}
SAYINGS = {
    "a docstring": ('"""What it is."""', '"""What it is, and more."""'),
    "the docstring of a class": ('"A record."', '"Another."'),
    "a line below a field": ('"""How many."""\n', ""),
    "a comment": ("# at most", "# below"),
    "an empty line": ("\nclass", "\n\n\nclass"),
    "a break of a line": ("record.n < limits.MOST", "(\n        record.n < limits.MOST\n    )"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_code_changes_the_fingerprint(change):
    assert digest_of(ast.parse(SOURCE.replace(*change))) != digest_of(ast.parse(SOURCE))


@pytest.mark.parametrize("change", SAYINGS.values(), ids=SAYINGS)
def test_what_code_says_to_people_does_not(change):
    assert change[0] in SOURCE
    assert digest_of(ast.parse(SOURCE.replace(*change))) == digest_of(ast.parse(SOURCE))


def test_it_covers_what_is_imported_within_the_package_and_the_bounds(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = set()
    for number, (most, bounds) in enumerate([("MOST = 3\n", "1"), ("MOST = 4\n", "1"), ("MOST = 3\n", "2")]):
        folder = tmp_path / f"somebodys_{number}"
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "machine.py").write_text("from . import limits\n")
        (folder / "limits.py").write_text(most)
        modules = modules_of(f"somebodys_{number}.machine")
        assert f"somebodys_{number}.limits" in modules
        assert {"statemachines.kernel.fsm", "statemachines_spec.explorer.entries"} <= set(modules)
        found.add(fingerprint(f"somebodys_{number}.machine", {"most": bounds}))
    assert len(found) == 3


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
    from statemachines_spec.sequence_windows.window_turns import WindowHost

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


def test_processes_share_the_work(kept):
    rewritten(kept, fingerprint="")
    again = tuple(certificate_set.recheck_all((kept, kept), write=True, jobs=2))
    assert [one.written for one in again] == [True, True]
    assert not is_stale(kept)


def test_a_system_that_comes_from_a_module_of_its_own_rests_on_that_module():
    """What is added there makes no certificate of the other systems stale."""
    apart = "statemachines_spec.shared_subscriptions.unreachable"
    made = certificates.find_system("shared_subscriptions", "leader-to-member", size="small", variant="settled")
    kept = certificates.read(folder_of("shared_subscriptions") / "leader-to-member-small.json")
    words = {**made.describe_bounds(), "system": kept.system, "size": kept.size, "variant": kept.variant}
    assert certificates.fingerprint_now(kept) == fingerprint(apart, words)
    others = certificates.read(folder_of("shared_subscriptions") / "pause-small.json")
    assert apart not in modules_of("statemachines_spec.shared_subscriptions.timed")
    assert not certificates.is_stale(others)

"""`gapless check` for what it has never heard of: a system at `module:ATTRIBUTE`, a protocol that registers itself."""

from __future__ import annotations

import importlib
import sys
from itertools import count
from pathlib import Path

import msgspec
import pytest

from statemachines import cli, registry
from statemachines.kernel import Protocol
from statemachines_spec import CheckProtocol, Eventually, System, bug, certificates
from statemachines_spec.directed_system import explore_directed
from statemachines_spec.protocol import all_parts, choose_systems, of_protocol

MINE = """
import sys
sys.path.insert(0, {here!r})
from dataclasses import dataclass

from msgspec.structs import replace

import lock_toy
from lock_toy import *
from statemachines.kernel import Protocol
from statemachines_spec import Bug, CheckProtocol, Eventually
from statemachines_spec.bug import change_rows

NOTHING = 3
SYSTEM = lock_system(asks=1)

def paused(size="small", variant="settled"):
    return lock_system(asks={{"small": 1, "ci": 2}}[size], honours=variant == "settled", remote=True)

def needs(this):
    return SYSTEM

def no_system():
    return 7

def build(name, size, variant, without):
    return replace(paused(size, variant), name=name, orders=() if without else SYSTEM.orders)

def waits(system):
    holder = next(actor for actor in system.actors if actor.name == "holder-1")
    return (Eventually("L1", "who waits does not wait for ever", (holder.is_in(WAITING),), lambda on: on),)

NEVER_OPEN = replace(SYSTEM, obligations=(Eventually("L8", "nobody", (), lambda: False),))

SPEC = CheckProtocol(
    systems={{"paused": "a holder stands still"}},
    build=build,
    sizes=("small", "ci"),
    variants={{"settled": "as it is", "no_tokens": "the store ignores tokens"}},
    orders=SYSTEM.orders,
    bugs=(Bug("any-answer", "an answer to an earlier question counts", "LK-12", "the guard of granted",
              change_rows(HOLDER, "hold", when=None)),),
    obligations_of=waits,
)
PROTOCOL = Protocol(
    name="lock_made_up", prefix="LK", machines={{"lock": "lock_toy:LOCK", "holder": "lock_toy:HOLDER"}},
    areas={{"spec": "{module}:SPEC"}},
)
"""

NUMBERS = count(1)


@pytest.fixture(scope="module")
def importable(tmp_path_factory):
    """A folder that modules are imported from; one, so that entries are made again in one process."""
    folder = tmp_path_factory.mktemp("importable")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def mine(importable):
    """A module of somebody else's, importable; its name."""
    module = f"mine_{next(NUMBERS)}"
    (importable / f"{module}.py").write_text(MINE.format(here=str(Path(__file__).parent), module=module))
    importlib.invalidate_caches()
    yield module
    sys.modules.pop(module, None)
    registry._REGISTERED.pop("lock_made_up", None)


@pytest.fixture
def gapless(capsys):
    def run(*arguments):
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


PLAIN = ("--engine", "plain")


@pytest.mark.parametrize("attribute", ["SYSTEM", "paused"])
def test_a_system_or_a_function_that_makes_one_is_checked(gapless, mine, attribute):
    code, out, err = gapless("check", f"{mine}:{attribute}", *PLAIN)
    assert (code, err) == (0, "")
    assert "checked within these bounds: no-error, one holder, fenced" in out
    assert "purity: every entry made twice" in out
    assert "rows reached in these 1 systems" in out
    assert "  lock: 3 of 4 rows" in out
    assert "    never 3 expiry: ignore [LK-05]" in out


def test_size_and_variant_are_arguments_of_the_function(gapless, mine):
    assert gapless("check", f"{mine}:paused", "--size", "small", "--variant", "no_tokens", *PLAIN)[0] == 1
    code, out, _ = gapless("check", f"{mine}:paused", "--variant", "no_tokens", "--mermaid", *PLAIN)
    assert code == 1
    assert "VIOLATED fenced" in out
    assert "participant holder_1 as holder-1" in out
    out = gapless("check", f"{mine}:paused", "--variant", "no_tokens", "--test", *PLAIN)[1]
    assert f"from {mine} import paused" in out
    assert "one = paused(variant='no_tokens')" in out


@pytest.mark.parametrize("what", ["PROTOCOL", "SPEC"])
def test_a_protocol_that_registers_itself_is_checked_as_ours(gapless, mine, what):
    code, out, _ = gapless("check", f"{mine}:{what}", "--system", "paused", "--liveness", *PLAIN)
    assert code == 0
    assert "eventually L1: who waits does not wait for ever: open in" in out
    assert gapless("check", f"{mine}:{what}", "--variant", "no_tokens", *PLAIN)[0] == 1
    code, out, _ = gapless("check", f"{mine}:{what}", "--without", "lease before expiry", "--json", *PLAIN)
    assert code == 1
    assert msgspec.json.decode(out)[0]["broken"] == "one holder"


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("SYSTEM", "no obligations, so nothing is claimed: the system may stand still for ever"),
        ("NEVER_OPEN", "eventually L8: nobody: NEVER open, so nothing is claimed"),
    ],
)
def test_obligations_that_judge_nothing_are_inconclusive(gapless, mine, attribute, said):
    code, out, _ = gapless("check", f"{mine}:{attribute}", "--liveness", *PLAIN)
    assert said in out
    assert "fairness: weak" in out
    assert code == 3


def test_the_list_has_every_protocol_from_its_registration(gapless, mine):
    registry.protocol(f"{mine}:PROTOCOL")
    code, out, _ = gapless("check", "list")
    assert code == 0
    assert "lock_made_up, systems (small, ci):" in out
    assert "shared_subscriptions, systems (small, ci, large):" in out
    listed = msgspec.json.decode(gapless("check", "list", "--json")[1])
    assert listed["lock_made_up"]["variants"]["no_tokens"] == "the store ignores tokens"


@pytest.mark.parametrize("name", ["SYSTEM", "paused", "SPEC", "PROTOCOL"])
def test_a_certificate_names_what_it_is_of_and_is_checked_again(gapless, mine, tmp_path, name):
    assert gapless("check", f"{mine}:{name}", "--certify", str(tmp_path / "kept"), *PLAIN)[0] == 0
    (path,) = (tmp_path / "kept").iterdir()
    kept = certificates.read(path)
    assert kept.protocol == f"{mine}:{name}"
    code, out, _ = gapless("check", "--certificate", str(path), *PLAIN)
    assert code == 0
    assert "the same; checked within these bounds" in out
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, states=1)))
    assert gapless("check", "--certificate", str(path), *PLAIN)[0] == 1


def test_bugs_are_found_through_the_registration(mine):
    registry.protocol(f"{mine}:PROTOCOL")
    assert "lock_made_up/any-answer" in bug.list_bugs()
    (directed,) = of_protocol("lock_made_up").list_directed()
    assert explore_directed(directed).what == ""
    with bug.plant_bug("any-answer") as planted:
        assert planted.clause == "LK-12"
    assert bug.find_bug("lock_made_up/any-answer") is planted
    assert bug.find_bug("late-timer") is bug.find_bug("shared_subscriptions/late-timer")


def test_obligations_may_stand_in_the_system(mine):
    picked = choose_systems(f"{mine}:SYSTEM")
    one = Eventually("L9", "", (), lambda: True)
    assert picked.obligations(msgspec.structs.replace(picked.systems[0], obligations=(one,))) == (one,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{mine}:nothing",), "the module has no 'nothing'"),
        (("{mine}:SYSTM",), "the module has no 'SYSTM'; did you mean 'SYSTEM'?"),
        (("{mine}.py:SYSTEM",), "leave out .py: {mine}:SYSTEM"),
        (("{mine}:NOTHING",), "is neither a System nor a function"),
        (("{mine}:no_system",), "gives a int, and no System"),
        (("{mine}:needs",), "needs 'this'; give it a default"),
        (("{mine}:SYSTEM", "--size", "ci"), "is one by itself, and takes no size"),
        (("{mine}:paused", "--without", "x"), "takes no 'without'"),
        (("{mine}:paused", "--system", "x"), "is one system, and has no others"),
        (("{mine}:SPEC", "--size", "huge"), "there are: small, ci"),
        (("{mine}:SPEC", "--variant", "x"), "settled, no_tokens"),
        (("{mine}:SPEC", "--without", "x"), "lease before expiry"),
        (("no_such_module:SYSTEM",), "there is no module"),
        (("borrowers",), "unknown"),
        ((), "shared_subscriptions"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(gapless, mine, arguments, words):
    code, out, err = gapless("check", *(one.format(mine=mine) for one in arguments))
    assert (code, out) == (2, "")
    assert words.format(mine=mine) in err
    assert len(err.splitlines()) <= 2


def test_a_protocol_without_a_part_is_told_who_has_one(gapless, monkeypatch):
    monkeypatch.setitem(registry._REGISTERED, "bare_one", Protocol(name="bare_one", prefix="BO", machines={}))
    code, out, err = gapless("check", "bare_one")
    assert (code, out) == (2, "")
    assert "has no part for 'spec'" in err
    assert "shared_subscriptions" in err
    assert len(err.splitlines()) <= 2


def test_a_part_that_is_none_is_refused(monkeypatch):
    made = Protocol(name="odd_one", prefix="OD", machines={}, areas={"spec": "lock_toy:LOCK"})
    monkeypatch.setitem(registry._REGISTERED, "odd_one", made)
    with pytest.raises(registry.ConfigurationError, match="stands a Fsm, and no CheckProtocol"):
        of_protocol("odd_one")


def test_the_defaults_of_a_part_are_enough():
    part = CheckProtocol(systems={"one": "a system"}, build=lambda *names: System(str(names), "", (), None))
    assert part.system("one").name == "('one', 'small', 'settled', ())"
    assert [directed.name for directed in part.list_directed()] == ["one"]
    assert part.obligations(part.system("one")) == ()
    with pytest.raises(registry.ConfigurationError, match="deadline order = 'x': there is none"):
        part.system("one", without=("x",))
    assert "shared_subscriptions" in all_parts()


@pytest.mark.parametrize("name", ["PROTOCOL", "SPEC"])
def test_the_command_that_repeats_a_counterexample_works_in_a_process_that_knows_nothing(gapless, mine, tmp_path, name):
    script = tmp_path / "broken.json"
    words = ("--variant", "no_tokens", "--script", str(script), *PLAIN)
    code, _, said = gapless("check", f"{mine}:{name}", *words)
    assert code == cli.Exit.VIOLATED
    assert f"repeat it with: gapless replay {script}" in said
    registry._REGISTERED.pop("lock_made_up", None)
    code, out, _ = gapless("replay", str(script))
    assert code == cli.Exit.VIOLATED, out
    assert "VIOLATED" in out

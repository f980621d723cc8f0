"""A closed system moved by hand: the application, single messages, faults; what breaks is raised and told."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.testing import by_hand
from statemachines.testing.by_hand import ByHand, delay, drop
from statemachines.testing.closed_run import PropertyBroken
from statemachines.testing.system_test import SystemTest

sys.path.insert(0, str(Path(__file__).parents[1] / "spec"))
from lock_toy import FREE, HELD, HOLDING, IDLE, WAITING, lock_system
from toy_system import backwards, toy

sys.path.pop(0)

ONE, TWO = "holder-1", "holder-2"
README = Path(by_hand.__file__).with_name("README.md")


def has_the_lock(run, holder):
    return run.call("want", at=holder).deliver("acquire", to="lock").deliver("granted", to=holder)


def test_an_application_is_driven_by_hand():
    run = has_the_lock(ByHand(lock_system()), ONE)
    assert (run.record("lock").status, run.record(ONE).status, run.record(TWO).status) == (HELD, HOLDING, IDLE)
    run.call("store", at=ONE)
    assert run.local("store").state.token == 1
    run.fire("lease_end", at=ONE).fire("expiry")
    has_the_lock(run, TWO)
    assert "both hold" in run.seen_properties


def write_late(honours):
    """The first holder's write is on its way for so long that the second one's overtakes it."""
    run = has_the_lock(ByHand(lock_system(honours=honours, remote=True)), ONE)
    run.call("store", at=ONE).fire("lease_end", at=ONE).fire("expiry")
    has_the_lock(run, TWO).call("store", at=TWO)
    return run.deliver("write", sender=TWO).deliver("write", sender=ONE)


def test_a_late_write_is_refused_where_tokens_are_honoured():
    assert write_late(honours=True).local("store").state.token == 2


def test_a_late_write_breaks_the_fence_where_they_are_not():
    with pytest.raises(PropertyBroken) as caught:
        write_late(honours=False)
    assert caught.value.what == "fenced"


def test_messages_are_lost_doubled_and_held_back_by_hand():
    run = ByHand(lock_system()).call("want", at=ONE)
    run.duplicate("acquire").deliver("acquire")
    assert run.record("lock").token == 1, "the copy found the lock held"
    run.drop("granted")
    assert run.record(ONE).status == WAITING
    run.call("want", at=TWO).hold_back("acquire", sender=TWO)
    with pytest.raises(ConfigurationError, match="'drop granted': cannot be made; there are: drop acquire"):
        run.drop("granted")


def test_a_rule_that_holds_back_changes_the_order():
    """The first word comes after the others, and is broken where order matters."""
    one = toy({"in_flight": 3}, last=3, properties=(backwards(),), observed=True)
    late = delay("note", nth=1, moves=100)
    with pytest.raises(PropertyBroken) as caught:
        ByHand(one, late).calm()
    assert (caught.value.what, late.hit) == ("in order", 1)
    assert ByHand(one).calm().play.broken == ()


def test_words_that_fit_several_moves_are_refused_with_the_moves():
    run = ByHand(lock_system()).call("want", at=ONE)
    run.call("want", at=TWO)
    with pytest.raises(ConfigurationError, match=f"may be several: deliver acquire from {ONE} to lock, deliver"):
        run.deliver("acquire")
    with pytest.raises(ConfigurationError, match="'call store to holder-1': cannot be made; there are: none"):
        run.call("store", at=ONE)
    with pytest.raises(ConfigurationError, match="component = 'nobody': unknown; there are: lock, holder-1"):
        run.record("nobody")
    with pytest.raises(ConfigurationError, match="must be 1 or more, or 0"):
        drop("note", nth=-1)
    assert run.record("lock").status == FREE


def test_the_example_of_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "ByHand(" in block)
    exec(compile(code, str(README), "exec"), {**globals(), "SystemTest": SystemTest})
    assert "call want to holder-2" in capsys.readouterr().out

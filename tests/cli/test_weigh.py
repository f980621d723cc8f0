"""Weight has a ceiling, and so have decisions of a protocol that drivers take in branches of their own: both fall."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("weigh_tool", ROOT / "tools/weigh.py")
WEIGHT = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(WEIGHT)

DRIVERS = ("statemachines/drivers",)
LIMITS = {
    "cursor_recovery": 25,
    "missed_samples": 13,
    "mqtt_connections": 32,
    "persistent_sessions": 110,
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

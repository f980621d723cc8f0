"""The comparison of orders: a test that rests on what ran before it, or on chance, is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
from layers import PURE, name_layer

ROOT = Path(__file__).parents[2]


def loaded(path):
    """A file that is no module of a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ORDERS = loaded(ROOT / "tools" / "orders.py")

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_one"/>
<testcase classname="tests.a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.a" name="test_three"/>
<testcase classname="tests.a" name="test_three"><error message="its end"/></testcase>
<testcase classname="tests.a" name="test_four"><skipped message="no"/></testcase>
</testsuite></testsuites>
"""


def test_verdicts_are_read_and_a_test_that_ends_badly_has_not_passed(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    assert ORDERS.read(tmp_path / "report.xml") == {
        "tests.a::test_one": "passed",
        "tests.a::test_two": "failed",
        "tests.a::test_three": "error",
        "tests.a::test_four": "skipped",
    }


def test_what_differs_is_named_with_every_verdict_and_what_never_passes_too():
    given = {"one": "passed", "two": "passed", "three": "failed", "four": "passed"}
    other = {"one": "passed", "two": "failed", "three": "failed"}
    assert ORDERS.compare_verdicts({"given-2": given, "reverse-0": other}) == (
        ["four: given-2 passed, reverse-0 did not run", "two: given-2 passed, reverse-0 failed"],
        ["three: failed in all of them"],
    )
    assert ORDERS.compare_verdicts({"given-2": given, "reverse-0": given}) == ([], ["three: failed in all of them"])


class Config:
    """What `pytest_collection_modifyitems` asks."""

    def __init__(self, order):
        self.order = order

    def getoption(self, name):
        assert name == "--order"
        return self.order


def order_items(request, order, files):
    """Numbers of the files in that order, by the conftest of all tests."""
    (plugin,) = (one for one in request.config.pluginmanager.get_plugins() if hasattr(one, "refused_row"))
    items = [SimpleNamespace(nodeid=file, number=number) for number, file in enumerate(files)]
    plugin.pytest_collection_modifyitems(Config(order), items)
    return [item.number for item in items]


def ordered(request, order):
    """Ten things in that order."""
    return order_items(request, order, [f"tests/{folder}/test_{folder}.py" for folder in FOLDERS])


FOLDERS = ("kernel", "spec", "cli", "reports", "spec", "wire", "real", "sim", "kernel", "testing")


def test_orders_are_repeatable_and_leave_nothing_out(request):
    assert ordered(request, "given") == [3, 6, 1, 4, 9, 7, 2, 0, 5, 8], "what waits goes between what computes long"
    assert ordered(request, "reverse") == list(reversed(range(10)))
    assert ordered(request, "seed:1") == ordered(request, "seed:1") != ordered(request, "seed:2")
    assert sorted(ordered(request, "seed:1")) == list(range(10))


@pytest.mark.parametrize(
    ("file", "layer"),
    [
        ("kernel/test_no_file.py", "kernel"),
        ("testing/conformance/test_no_file.py", "testing"),
        ("test_no_file.py", ""),
        ("locks/drivers/test_node.py", "drivers"),
        ("locks/test_machine.py", PURE),
        ("locks/test_run.py", "sim"),
        ("locks/test_tcp.py", "drivers"),
    ],
)
def test_the_layer_of_a_file_is_its_folder_or_what_it_imports(tmp_path, monkeypatch, file, layer):
    (tmp_path / "spec" / "locks").mkdir(parents=True)
    (tmp_path / "locks" / "drivers").mkdir(parents=True)
    (tmp_path / "locks" / "test_machine.py").write_text("from statemachines.kernel import Fsm\n# statemachines_sim\n")
    (tmp_path / "locks" / "test_run.py").write_text("import statemachines_spec\nfrom statemachines_sim import world\n")
    (tmp_path / "locks" / "test_tcp.py").write_text("import asyncio\n")
    monkeypatch.setattr("layers.PAGES", tmp_path / "spec")
    assert name_layer(file, tmp_path) == layer


def test_a_protocol_s_tests_that_compute_long_begin(request):
    found = sorted(path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py"))
    own = [str(path) for path in found if (ROOT / "spec" / path.parts[0]).is_dir()]
    order = order_items(request, "given", [f"tests/{file}" for file in own])
    layers = [name_layer(own[number]) for number in order]
    short = layers.index(PURE)
    assert set(layers[short:]) == {PURE}
    assert {"reports", "demo", "sim", "spec", "testing", "drivers"} == set(layers[:short])
    assert len(layers) - short > 40


@pytest.mark.parametrize("order", ["backwards", "seed:x", "seed", "reverse:1", ""])
def test_an_order_that_is_none_is_refused(request, order):
    with pytest.raises(pytest.UsageError, match="must be given, reverse or seed:N"):
        ordered(request, order)

"""The comparison of orders: a test that rests on what ran before it, or on chance, is named."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

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

"""For all tests: the same examples in every run, whatever ran before, in whichever worker, on however busy a machine;
and at the end, which rows of the shipped machines were taken.

A row counts when a machine took it in this process or in a worker of pytest-xdist (tests that start processes of their
own, and tests with a planted bug, do not count).  The denominators are exact: the rows of the declaration.

Entries (pairs of a local state and an event) are counted by the tests that drive a closed system and ask for it; those
are named.  The denominators are exact here, too: the same test has explored the system.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import random
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, settings
from layers import name_layer
from long_cases import is_long
from waiting import run_async

from statemachines import catalogue
from statemachines.kernel import Fsm, ProtocolError
from statemachines.testing.bug_search import fix_draws

REPEATABLE = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40
)
settings.register_profile("repeatable", REPEATABLE)
settings.register_profile("soak", REPEATABLE, max_examples=1_000)
settings.load_profile("repeatable")

SHOWN = 12
"""Rows never taken are named where there are no more of them: who runs a few tests need not hear of all others."""

TAKEN: dict[str, set[int]] = {name: set() for name in catalogue.names()}
COMPILED = {id(catalogue.machine(name)._cells): name for name in catalogue.names()}


ENTRIES: dict[str, dict[str, tuple[set[int], int]]] = {}
"""Name of a count -> component -> entries taken, here or in a worker, and how many there are."""

COUNTED_BY: dict[str, set[str]] = {}
"""Name of a count -> the tests that it comes from."""


def pytest_collection_finish():
    """What is imported and collected stays to the end.  A look of the garbage collector at all of it costs 0.2 s, and
    the benchmarks alone ask for hundreds.  While it grows nothing of it is garbage."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    """The URL of a PostgreSQL server; the workers of a run share it."""
    from statemachines.drivers.sql import silent_server
    from statemachines.testing.postgres import share_server

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with share_server(shared / "postgres") as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(silent_server, "PROBE_S", 60.0)  # a server on a busy machine is slow, and is not silent
        yield url


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that is a coroutine runs in a loop of its own; none waits for ever."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_async(pyfuncitem.obj(**given))
    return True


def counts():
    """What tests of this process have counted; nothing is imported for it."""
    module = sys.modules.get("statemachines.testing.system_test")
    return {} if module is None else module.COUNTS


def add_entries(name, by_component, tests):
    """Entries that were taken, here or in a worker."""
    known = ENTRIES.setdefault(name, {})
    for component, (taken, tabulated) in by_component.items():
        known.setdefault(component, (set(), tabulated))[0].update(taken)
    COUNTED_BY.setdefault(name, set()).update(tests)


def refused_row(fsm, record, event):
    """The row by which the table refuses the event (-1: it is not of the alphabet, or the machine has stopped)."""
    for line in fsm.cell(record.status, type(event)):
        if line.kind == "refuse" and (line.when is None or line.when(record, event)):
            return line.number
    return -1


def counting(step, row_of):
    """`Fsm.step` or `Fsm.child_step` that notes the row; a table that is not the shipped one is not counted."""

    @functools.wraps(step)
    def counted(self, record, event, *args):
        name = COMPILED.get(id(self._cells))
        if name is None:
            return step(self, record, event, *args)
        try:
            done = step(self, record, event, *args)
        except ProtocolError:
            TAKEN[name].add(refused_row(self, record, event))
            raise
        TAKEN[name].add(row_of(done))
        return done

    return counted


def pytest_addoption(parser):
    parser.addoption(
        "--order", default="given", help="tests in another order: reverse, or seed:N; tools/orders.py compares them"
    )


COMPILE = ["-m", "statemachines", "check", "cursor_recovery", "--system", "pools", "--engine", "compiled", "--liveness"]
"""Compiles both walkers of the explorer, and keeps them beside their bytecode."""

JAVA = "-XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1"
"""Of each Java process that a test starts for Spark: it is short; garbage has one thread, and code one compiler."""


def compile_walkers_once(config):
    """Beside the first tests, before workers come to those that explore: else each of them compiles the same."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    compiling = subprocess.Popen([sys.executable, *COMPILE], **quiet)
    config.add_cleanup(compiling.wait)


def pytest_configure(config):
    if getattr(config.option, "numprocesses", None):
        compile_walkers_once(config)
    gc.disable()
    config.add_cleanup(gc.enable)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA)
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    draws = fix_draws()
    draws.__enter__()
    config.add_cleanup(lambda: draws.__exit__(None, None, None))
    Fsm.step = counting(Fsm.step, lambda step: step.row)
    Fsm.child_step = counting(Fsm.child_step, lambda done: done[2].row)


def pytest_sessionfinish(session):
    """A worker hands its rows to whoever started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["rows_taken"] = {name: sorted(rows) for name, rows in TAKEN.items()}
        output["entries_taken"] = [
            (
                name,
                {component: (sorted(taken), tabulated) for component, (taken, tabulated) in count.sizes().items()},
                sorted(COUNTED_BY.get(name, ())),
            )
            for name, count in counts().items()
        ]


def pytest_itemcollected(item):
    """What `long.txt` names is marked so."""
    if is_long(item.nodeid):
        item.add_marker(pytest.mark.long)


LONG = ("reports", "demo", "spec", "testing", "sim", "bench", "foreign", "examples", "cli")
"""Layers whose tests compute long: they begin, so that at the end no worker waits for another."""

WAITING = ("real", "drivers")
"""Layers whose tests wait more than they compute: for timers, sockets and processes that begin."""

ON_SPARK = (
    "reports/test_follow.py::test_a_driver_that_is_killed",
    "reports/test_follow.py::test_logs_of_a_cluster",
    "reports/test_pipeline",
    "reports/test_spark.py",
    "reports/test_interrupted.py::test_on_spark",
    "judged_side_by_side[--engine=spark]",
    "as_far_as_may_be[--engine=spark]",
    "the_page_shows_deaths_and_the_ring[spark]",
    "is_found_in_its_run_by_its_check",
    "where_nothing_is_planted_nothing_is_found",
    "the_page_shows_resumes_and_stores",
    "the_page_has_both_confusion_tables[spark]",
    "tests/demo/",
    "/test_demo_of_",
    "shared_subscriptions/test_account",
    "shared_subscriptions/test_real",
    "[judge-steps",
    "[analyze-100m",
    "[campaign-spark",
)
"""Tests that start Spark in their own process."""


def is_on_spark(nodeid):
    return any(part in nodeid for part in ON_SPARK)


def order_files(items):
    """File -> its place: files that wait go between those that compute long, so that processors have something to do
    all the time, and none of them comes last.  A file that is not here is short."""
    files = dict.fromkeys(item.nodeid.partition("::")[0] for item in items)
    layer_of = {file: name_layer(file.partition("/")[2]) for file in files}
    places = {}
    for layers, last in ((LONG, 1.0), (WAITING, 0.9)):
        among = [file for layer in layers for file in files if layer_of[file] == layer]
        places.update((file, last * number / len(among)) for number, file in enumerate(among))
    return places


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile` a file of tests goes to one worker, with what its fixtures made; what starts Spark goes
    all to one, since it takes half a minute until Java is warm."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "spark" if is_on_spark(nodeid) else super()._split_scope(nodeid)

    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """The order that was asked for; every worker comes to the same."""
    how, _, number = config.getoption("--order").partition(":")
    if (how, number) == ("given", ""):
        places = order_files(items)
        items.sort(key=lambda item: (not is_on_spark(item.nodeid), places.get(item.nodeid.partition("::")[0], 1.0)))
    elif how == "reverse" and not number:
        items.reverse()
    elif how == "seed" and number.isdecimal():
        random.Random(int(number)).shuffle(items)
    else:
        raise pytest.UsageError(f"--order = {config.getoption('--order')!r}: must be given, reverse or seed:N")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Whichever test takes entries that are counted is named with them."""
    before = {name: count.takes for name, count in counts().items()}
    result = yield
    for name, count in counts().items():
        if count.takes > before.get(name, 0):
            COUNTED_BY.setdefault(name, set()).add(item.nodeid.rpartition("/")[2])
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A worker has ended."""
    for name, rows in getattr(node, "workeroutput", {}).get("rows_taken", {}).items():
        TAKEN[name].update(rows)
    for name, by_component, tests in getattr(node, "workeroutput", {}).get("entries_taken", ()):
        add_entries(name, by_component, tests)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("rows taken")
    for name, rows in TAKEN.items():
        lines = catalogue.machine(name).lines
        left = [f"{line.number} ({line.clause})" for line in lines if line.number not in rows]
        missing = f"; not: {', '.join(left)}" if 0 < len(left) <= SHOWN else ""
        terminalreporter.write_line(f"{name:12} {len(lines) - len(left):3} of {len(lines):3}{missing}")
    for name, count in counts().items():
        add_entries(name, count.sizes(), ())
    if ENTRIES:
        from statemachines.testing.system_test import format_entries

        terminalreporter.section("entries taken")
        for name, by_component in sorted(ENTRIES.items()):
            sizes = {component: (len(taken), tabulated) for component, (taken, tabulated) in by_component.items()}
            terminalreporter.write_line(f"entries {format_entries(name, sizes)}")
            terminalreporter.write_line(f"  by {', '.join(sorted(COUNTED_BY.get(name, ())))}")

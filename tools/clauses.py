"""Clauses: take each one away, and see whether a test that is named after it fails.

    python tools/clauses.py                          every clause of every protocol; what nothing carries is listed
    python tools/clauses.py --protocol missed_samples
    python tools/clauses.py SS-80 SS-81              these alone, with the tests that fail
    python tools/clauses.py --protocol lock_service --tests examples/lock_service/tests
    python tools/clauses.py --by-row                 finer: each row alone; a row may share its test with others
    python tools/clauses.py --slice 3/20             every twentieth clause, beginning with the third

What is taken away: of a clause with rows, its rows in all machines and processes (a cell that nothing decides any more
ignores its event; one that was ignored by the clause refuses it); of one with invariants, the invariants; of any other,
what `breaks.py` beside the protocol's tests says.  The tests that carry the clause in their names run with the mutant,
all in this process, until one of them fails (or does not end).  A clause that says "not modelled: why" is not asked.

Exit code 0: every clause is carried; 1: some are not; 2: a name that is none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import io
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))

from clauses import tests_of  # noqa: E402
from layers import PURE, name_layer  # noqa: E402
from mutants import Break, without, without_invariants, without_rows  # noqa: E402

from statemachines import catalogue, registry  # noqa: E402
from statemachines.kernel import ConfigurationError, DeclarationError, Fsm, Ignore, Row  # noqa: E402
from statemachines.kernel.row import AnyRow  # noqa: E402

SECONDS_MAX = 30.0
"""A test that takes longer has failed."""
BUSY_S_MAX = 8.0
"""So has one that keeps the processor busy for longer: no other does, on however loaded a machine."""
AGAIN_S = 0.2
"""Until it is told so again."""


class Mutant(NamedTuple):
    """A clause that is taken away: `what` of it, and how; `tests` that should fail (pytest's "file::name")."""

    clause: str
    what: str
    apply: Break
    tests: tuple[str, ...]


class Verdict(NamedTuple):
    """What became of a mutant: the test that failed ("" = none), how many ran, for how long."""

    mutant: Mutant
    failed: str
    ran: int
    seconds: float = 0.0


# -- what is taken away ---------------------------------------------------------------------------------------------


def mutants_of(clause: str, machines: tuple[Fsm[Any], ...], breaks: dict[str, Break], folder: Path) -> Iterator[Mutant]:
    """The ways to take the clause away; none where nothing carries it.  `folder`: where its tests are."""
    tests = list_tests(clause, folder)
    with_rows = [fsm for fsm in machines if any(line.clause == clause for line in fsm.lines)]
    if with_rows:
        yield Mutant(clause, "rows", partial(each, without_clause, with_rows, clause), tests)
    with_invariants = [fsm for fsm in machines if any(one.clause == clause for one in fsm.invariants)]
    if with_invariants:
        yield Mutant(clause, "invariant", partial(each, without_invariants, with_invariants, clause), tests)
    if clause in breaks:
        yield Mutant(clause, "code", breaks[clause], tests)


def list_tests(clause: str, folder: Path) -> tuple[str, ...]:
    """The tests of the clause.  Those of machines alone come first: without a row a test of drivers waits until it is
    ended, and that takes longer than all others together."""
    found = sorted(tests_of(clause, folder), key=lambda one: name_layer(one.file, folder) != PURE)
    return tuple(f"{folder / one.file}::{one.name}" for one in found)


def single_rows(clause: str, machines: tuple[Fsm[Any], ...], folder: Path) -> Iterator[Mutant]:
    """Each row of the clause alone, where it has several."""
    tests = list_tests(clause, folder)
    rows = [(fsm, row) for fsm in machines for row in fsm.declared if row.clause == clause]
    for fsm, row in rows if len(rows) > 1 else ():
        (first, *_) = fsm._number((row,))
        states = "|".join(state.value for state in first.sources)
        kind = first.action_name if isinstance(row, Row) else first.kind
        events = "|".join(event.__name__ for event in (row.on if isinstance(row, Ignore) else (row.on,)))
        yield Mutant(clause, f"{fsm.name}: {events} in {states}: {kind}", partial(without_one, fsm, row), tests)


def without_one(fsm: Fsm[Any], row: AnyRow, stack: ExitStack) -> None:
    """The machine does not have the row until the stack closes."""
    without_rows(stack, fsm, (row,))


def without_clause(stack: ExitStack, fsm: Fsm[Any], clause: str) -> None:
    """The machine has no row of the clause until the stack closes."""
    without(fsm, clause)(stack)


def each(change: Callable[[ExitStack, Fsm[Any], str], None], of: list[Fsm[Any]], clause: str, stack: ExitStack) -> None:
    """All these machines are changed."""
    for fsm in of:
        change(stack, fsm, clause)


def breaks_of(protocol: str, folder: Path) -> dict[str, Break]:
    """How to break the clauses of the protocol that are no rows: `BREAKS` of `breaks.py` beside its tests."""
    found: dict[str, Break] = {}
    for path in sorted(folder.rglob(f"{protocol}/*breaks.py")):
        spec = importlib.util.spec_from_file_location(f"breaks_of_{protocol}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= module.BREAKS
    return found


class TooLong(BaseException):
    """The test goes on for longer than any of ours does: without the clause something never ends."""


def is_in_loop() -> bool:
    """Whether an event loop runs in this thread."""
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return False


@contextlib.contextmanager
def limit_time(seconds: float, busy_s: float = BUSY_S_MAX) -> Iterator[None]:
    """What runs here for longer, or is busy for longer, gets `TooLong`: again and again while an event loop runs, whose
    callbacks keep it."""
    is_raised = False

    def stop(signum: int, frame: object) -> None:
        nonlocal is_raised
        if not is_raised or is_in_loop():
            is_raised = True
            raise TooLong(f"longer than {seconds} s, or busy for {busy_s} s")

    timers = ((signal.ITIMER_REAL, signal.SIGALRM, seconds), (signal.ITIMER_PROF, signal.SIGPROF, busy_s))
    before = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, first in timers:
        signal.setitimer(timer, first, AGAIN_S)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for (_, number, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


# -- running the tests ----------------------------------------------------------------------------------------------


class Runner:
    """A pytest plugin: collects once, then runs for each mutant the tests named after its clause until one fails."""

    def __init__(self, mutants: list[Mutant], say: Callable[[Verdict], None]) -> None:
        self.mutants = mutants
        self.say = say
        self.verdicts: list[Verdict] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Before any test is imported: a failing example need not be shrunk, nor told at length."""
        from hypothesis import Phase, settings  # not sooner: pytest rewrites what its plugins are made of

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("clauses", derandomize=True, database=None, deadline=None, phases=phases)
        settings.load_profile("clauses")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of the suite."""
        items: dict[str, list[Any]] = {}
        for item in session.items:
            items.setdefault(f"{item.path}::{getattr(item, 'originalname', item.name)}", []).append(item)
        for mutant in self.mutants:
            begun = time.perf_counter()
            verdict = self.judge(mutant, [one for test in mutant.tests for one in items.get(test, ())])
            self.verdicts.append(verdict._replace(seconds=time.perf_counter() - begun))
            self.say(self.verdicts[-1])
        return True

    def judge(self, mutant: Mutant, items: list[Any]) -> Verdict:
        """Run the items, with the mutant in place, until one fails."""
        for ran, item in enumerate(items, 1):
            # What its fixtures were before is gone; a steps text has none.
            getattr(item, "_initrequest", lambda: None)()
            with ExitStack() as stack:
                try:
                    mutant.apply(stack)
                except DeclarationError as error:
                    return Verdict(mutant, f"no declaration without it: {error}", 0)
                with limit_time(SECONDS_MAX):
                    reports = runtestprotocol(item, log=False, nextitem=None)
            if any(report.failed for report in reports):
                return Verdict(mutant, item.name, ran)
        return Verdict(mutant, "", len(items))


def run(mutants: list[Mutant], say: Callable[[Verdict], None]) -> list[Verdict]:
    """The verdicts of all mutants, in their order; each is said as soon as it is known."""
    runner = Runner(mutants, say)
    files = sorted({test.partition("::")[0] for mutant in mutants for test in mutant.tests})
    if files:
        with contextlib.redirect_stdout(io.StringIO()):
            ignored = "ignore::pytest.PytestAssertRewriteWarning"  # of what this process has imported before
            options = ["-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:unraisableexception", "--no-header"]
            options += ["-W", ignored]  # a test that was ended leaves its sockets to the collector
            pytest.main([*options, *files], plugins=[runner])
    return runner.verdicts


# -- the command ----------------------------------------------------------------------------------------------------


def choose_mutants(
    protocols: list[str], clauses: list[str], part: tuple[int, int], folder: Path, by_row: bool
) -> tuple[list[Mutant], list[tuple[str, str]]]:
    """The mutants of the clauses asked for, and the clauses that cannot be asked, each with the reason."""
    mutants: list[Mutant] = []
    without: list[tuple[str, str]] = []
    for protocol in protocols:
        own = tuple(process.fsm for process in catalogue.processes(protocol))
        machines, breaks = (*catalogue.machines(protocol), *own), breaks_of(protocol, folder)
        for clause in catalogue.clauses(protocol).values():
            if (clauses and clause.id not in clauses) or not clause.is_modelled:
                continue
            if by_row:
                mutants += single_rows(clause.id, machines, folder)
                continue
            found = list(mutants_of(clause.id, machines, breaks, folder))
            mutants += found
            if not found:
                without.append((clause.id, "no row, no invariant, and nothing says how to break it"))
            elif not found[0].tests:
                without.append((clause.id, "no test is named after it"))
    first, of = part
    return [one for one in mutants if one.tests][first::of], without


def ours(folder: Path) -> list[str]:
    """The protocols that have tests below the folder: others may be installed."""
    return [name for name in registry.names() if any(path.is_dir() for path in folder.rglob(name))]


def slice_of(text: str) -> tuple[int, int]:
    """ "3/20": beginning with the third, every twentieth."""
    first, _, of = text.partition("/")
    if not (first.isdigit() and of.isdigit() and 1 <= int(first) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected FIRST/OF, such as 3/20")
    return int(first) - 1, int(of)


def main() -> int:
    """Say what nothing carries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clauses", nargs="*", help="ids (default: all)")
    parser.add_argument("--protocol", action="append", help="only this one; may be repeated")
    parser.add_argument("--tests", type=Path, default=TESTS, metavar="DIR", help="where tests are (default: ours)")
    parser.add_argument("--by-row", action="store_true", help="each row of a clause alone, where it has several")
    parser.add_argument("--slice", type=slice_of, default=(0, 1), metavar="FIRST/OF", help="a part of them")
    parser.add_argument("--verbose", action="store_true", help="every clause, with the test that failed and its time")
    options = parser.parse_args()
    begun = time.process_time()
    try:
        protocols = [registry.protocol(name).name for name in options.protocol or ours(options.tests)]
        known = {one for name in protocols if registry.protocol(name).page for one in catalogue.clauses(name)}
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if strange := [one for one in options.clauses if one not in known]:
        print(f"error: {strange[0]}: no clause of {', '.join(protocols)}", file=sys.stderr)
        return 2
    protocols = [name for name in protocols if registry.protocol(name).page]
    mutants, without = choose_mutants(
        protocols, options.clauses, options.slice, options.tests.resolve(), options.by_row
    )

    def say(verdict: Verdict) -> None:
        if options.verbose or options.clauses or not verdict.failed:
            said = (
                f"carried: {verdict.failed}" if verdict.failed else f"not carried: {verdict.ran} tests pass without it"
            )
            spent = f" ({verdict.seconds:.1f} s)" if options.verbose else ""
            print(f"{verdict.mutant.clause} ({verdict.mutant.what}) {said}{spent}", file=sys.stderr, flush=True)

    verdicts = run(mutants, say)
    for clause, why in without:
        print(f"{clause} not carried: {why}", file=sys.stderr)
    loose = [one for one in verdicts if not one.failed]
    print(
        f"{len(verdicts) - len(loose)} of {len(verdicts)} mutants are found by tests named after their clause; "
        f"{len(without)} clauses cannot be asked ({time.process_time() - begun:.0f} s)"
    )
    return 1 if loose or without or len(verdicts) < len(mutants) else 0


if __name__ == "__main__":
    sys.exit(main())

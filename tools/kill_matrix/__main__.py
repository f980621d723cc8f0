"""Which tests are needed: for a line, for a clause, or since they alone notice a mistake that is planted.

    python tools/kill_matrix reach out/reach TESTS...
    python tools/kill_matrix choose out/reach out/chosen.json
    python tools/kill_matrix kill out/chosen.json out/kills.jsonl --seed 1 --count 100 --under statemachines/drivers
    python tools/kill_matrix spare out/chosen.json out/kills.jsonl

`reach` runs the tests once (`-n 4` and other words of pytest may stand there), child processes included, and keeps in a
folder which lines each reaches.  `choose` keeps what `HELD` names, tables of many cases, and of the others those that
reach a line or carry a clause of their own, light ones first.  `kill` draws places by a seed and plants a mistake
in each: those that are kept and reach its line run, quick ones first, and where none of them fails, the others do;
the one that fails is kept from then on.  Several may run at once.  `spare` names what is not kept, and says how many
mistakes of each seed nothing that was kept until then had noticed: what is lost if they go.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from source_mistake import Place, list_places

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ROOMS = ("", "sim", "spec", "reports", "benchmarks", "tools")
HELD = re.compile(r"/(steps|broken|golden)/|_(contract|watch)\.py|tests/examples/|::test_(scenario_)?\d")
TABLE = 8
"""A function with so many cases is a table: a case costs a line."""
CLAUSE = re.compile(r"(?<![A-Z])([A-Z]{2})[_-](\d+)|(?<![A-Z])([A-Z]{4,})(?![A-Z])")
TEST = re.compile(r"(tests/\S+?\.py::[^\[\s|]+)")
BEGIN_S, MOST_S = 30, 50
"""So long may a run take to begin; so many seconds of tests, as they took when they were reached, are in it."""


def run_tests(words: Iterable[str], out: Path, seconds: float | None = None, **given: str) -> int | None:
    """The exit code of pytest, None if it is not over in time; what it prints is in the file."""
    path = os.pathsep.join([str(HERE), *(str(ROOT / room) for room in ROOMS)])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long", "--tb=no", "-rfE", *words]
    with out.open("w") as file:
        environment = {**os.environ, "PYTHONPATH": path, **given}
        running = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, start_new_session=True)
        try:
            return running.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, 9)
            return None


def reach(folder: Path, tests: list[str]) -> None:
    """Run the tests once."""
    folder.mkdir(parents=True)
    words = ["-p", "sitecustomize", "-vv", "--durations=0", "--durations-min=0", *tests]
    run_tests(
        words, folder / "log", KILL_REACH=str(folder), KILL_ROOMS=os.pathsep.join(str(ROOT / one) for one in ROOMS)
    )


def read_reach(folder: Path) -> dict[str, set[str]]:
    """Test -> the lines that it reaches."""
    import coverage

    found: dict[str, set[str]] = defaultdict(set)
    for file in folder.glob("lines*"):
        data = coverage.CoverageData(str(file))
        try:
            data.read()
        except coverage.exceptions.DataError:
            continue  # of a process that was killed
        for path in data.measured_files():
            for line, tests in data.contexts_by_lineno(path).items():
                for test in filter(None, tests):
                    found[test.partition("[")[0]].add(f"{Path(path).relative_to(ROOT)}:{line}")
    return found


def weigh_tests() -> dict[str, int]:
    """Test function -> its statements."""
    found = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            inside, owner = (node.body, f"{node.name}::") if isinstance(node, ast.ClassDef) else ([node], "")
            for one in inside:
                is_test = isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name.startswith("test")
                if is_test and "given(" not in ast.unparse(one):  # what Hypothesis drives stays
                    test = f"{file.relative_to(ROOT)}::{owner}{one.name}"
                    found[test] = sum(isinstance(inner, ast.stmt) for inner in ast.walk(one))
    return found


def keep_needed(
    reached: dict[str, set[str]], clauses: dict[str, set[str]], weights: dict[str, int], kept: set[str]
) -> set[str]:
    """`kept`, and of the others those with something of their own, most for its weight first."""
    things = {test: lines | clauses[test] for test, lines in reached.items()}
    held = set().union(*(things[test] for test in kept))
    rest = set(things) - kept
    while rest:
        gains = {test: len(things[test] - held) / weights[test] for test in rest}
        best = max(sorted(gains), key=gains.__getitem__)
        if not gains[best]:
            break
        kept, held, rest = kept | {best}, held | things[best], {one for one in rest if gains[one]} - {best}
    return kept


def choose(folder: Path, out: Path) -> None:
    """What lines and clauses need."""
    log = (folder / "log").read_text()
    seconds: Counter[str] = Counter()
    for took, test in re.findall(rf"^([\d.]+)s \w+ +{TEST.pattern}", log, re.M):
        seconds[test] += float(took)
    failed = set(re.findall(rf"^(?:FAILED|ERROR) {TEST.pattern}", log, re.M))
    names = set(re.findall(r"(?:PASSED|SKIPPED|FAILED) (tests/.*?\.py::.*?) *$", log, re.M))
    cases: dict[str, set[str]] = defaultdict(set)
    for name in names:
        cases[name.partition("[")[0]].add(name)
    reached, weights = read_reach(folder), weigh_tests()
    known = {test: reached[test] for test in cases}
    clauses = {test: {"".join(one) for name in names for one in CLAUSE.findall(name)} for test, names in cases.items()}
    kept = {one for one in known if HELD.search(one) or one in failed or one not in weights or len(cases[one]) >= TABLE}
    lines: dict[str, list[str]] = defaultdict(list)
    for test, of_test in sorted(known.items()):
        for line in of_test:
            lines[line].append(test)
    kept = keep_needed(known, clauses, weights, kept)
    out.write_text(json.dumps({"kept": sorted(kept), "all": sorted(known), "seconds": seconds, "lines": lines}))


def notice(tests: list[str], place: Place, seconds: dict[str, float], out: Path) -> str:
    """The first of the tests that notices the mistake, quick ones first ("": none does)."""
    drawn, most = [], MOST_S
    for test in sorted(tests, key=lambda one: seconds.get(one, 0)):
        drawn += [test] if most > 0 or not drawn else []
        most -= seconds.get(test, 0)
    if not drawn:
        return ""
    words = ["-n0", "-x", "-v", "--assert=plain", *drawn]
    ended = run_tests(words, out, BEGIN_S + 2 * (MOST_S - min(most, 0)), KILL_PLACE=json.dumps(place))
    found = TEST.findall(out.read_text())
    return "" if ended == 0 else (found or drawn)[-1]


def kill(known: dict[str, Any], kills: Path, seed: int, count: int, under: list[str]) -> None:
    """Plant mistakes, and see who notices."""
    files = sorted(file for one in under for file in (ROOT / one).rglob("*.py"))
    places = [place for file in files for place in list_places(file, str(file.relative_to(ROOT)))]
    reached = [place for place in places if f"{place.file}:{place.line}" in known["lines"]]
    for place in random.Random(seed).sample(reached, min(count, len(reached))):
        before = read_kills(kills)
        if any(Place(*one["place"]) == place for one in before):
            continue
        kept = {*known["kept"], *(one["by"] for one in before)}
        tests = known["lines"][f"{place.file}:{place.line}"]
        out, seconds = kills.with_suffix(f".{os.getpid()}"), known["seconds"]
        by = notice([one for one in tests if one in kept], place, seconds, out)
        lost = "" if by else notice([one for one in tests if one not in kept], place, seconds, out)
        with kills.open("a") as file:
            file.write(json.dumps({"place": place, "seed": seed, "by": by or lost, "lost": bool(lost)}) + "\n")
        print(
            f"{place.file}:{place.line} {place.mistake}: {by or lost or 'nobody'}{' (lost)' * bool(lost)}", flush=True
        )


def read_kills(file: Path) -> list[dict[str, Any]]:
    """What is in the file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def spare(known: dict[str, Any], kills: list[dict[str, Any]]) -> list[str]:
    """Tests that nothing keeps."""
    return sorted({*known["all"]} - {*known["kept"]} - {one["by"] for one in kills})


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser("kill_matrix", None, __doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("reach", "choose", "kill", "spare"))
    parser.add_argument("known", type=Path)
    parser.add_argument("--under", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    given, rest = parser.parse_known_intermixed_args()
    if given.command == "reach":
        reach(given.known.absolute(), rest)
    elif given.command == "choose":
        choose(given.known, Path(rest[0]))
    elif given.command == "kill":
        kill(json.loads(given.known.read_text()), Path(rest[0]), given.seed, given.count, given.under)
    else:
        kills = read_kills(Path(rest[0]))
        print(*spare(json.loads(given.known.read_text()), kills), sep="\n")
        for seed, of_seed in sorted(Counter(one["seed"] for one in kills).items()):
            lost = sum(one["lost"] for one in kills if one["seed"] == seed)
            noticed = sum(bool(one["by"]) for one in kills if one["seed"] == seed)
            print(
                f"seed {seed}: of {of_seed} mistakes {noticed} are noticed, {lost} by none that was kept",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()

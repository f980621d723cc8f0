"""Which tests notice a mistake in a driver, a store or a tool, and which tests notice nothing of their own.

    python tools/kill_matrix reach out/reach.json --under statemachines/drivers/persistent_sessions TESTS...
    python tools/kill_matrix kill out/reach.json out/kills.jsonl --seed 1 --count 100
    python tools/kill_matrix spare out/reach.json out/kills.jsonl

`reach` runs the tests once, children included, and keeps which functions each reaches.  `kill`
draws places by a seed, plants a mistake in each, and runs the tests that reach its function; what is in the file
already is not run again.  `spare` names tests without a function, a clause or a kill of their own: all
of these have another test.  Choose by one seed, and measure what is lost by another.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from source_mistake import Place, list_places

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CLAUSE = re.compile(r"[A-Z]{2}_\d+|[A-Z]{4,}")
BEGIN_S, EACH_S = 60, 5
"""So long may a run of tests take, and so much more for each of them."""
STATES = ("FAILED", "ERROR ")


def run_tests(arguments: list[str], seconds: float | None = None, **environment: str) -> set[str]:
    """The tests that fail; all of them where the run is not over in time."""
    path = os.pathsep.join([str(HERE), *map(str, (ROOT, ROOT / "sim", ROOT / "spec", ROOT / "reports"))])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-q",
        "-p",
        "no:cacheprovider",
        "-rfE",
        "--tb=no",
        "--assert=plain",
        *arguments,
    ]
    given = {**os.environ, "PYTHONPATH": path, **environment}
    try:
        done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return set(arguments)
    failed = {line.split(" ", 1)[1].partition(" - ")[0] for line in done.stdout.splitlines() if line[:6] in STATES}
    return failed or ({"collection"} if done.returncode not in (0, 1) else set())


def reach(out: Path, under: list[str], tests: list[str]) -> None:
    """Run the tests once."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        report = Path(folder, "report.xml")
        places = os.pathsep.join(str(ROOT / one) for one in under)
        failed = run_tests(
            [*tests, f"--junitxml={report}", "--durations=0", "-vv"], KILL_REACH=folder, KILL_UNDER=places
        )
        found: dict[str, set[str]] = defaultdict(set)
        for file in Path(folder).glob("[0-9]*"):
            for line in file.read_text(encoding="utf-8").splitlines():
                test, path, function = line.split("\t")
                found[f"{Path(path).relative_to(ROOT)}:{function}"].add(test)
    kept = {function: sorted(by - failed - {""}) for function, by in sorted(found.items())}
    out.write_text(json.dumps({"under": under, "failed": sorted(failed), "reach": kept}, indent=1), encoding="utf-8")


def kill(known: dict[str, Any], out: Path, seed: int, count: int) -> None:
    """Plant mistakes, and see who notices."""
    files = sorted(file for one in known["under"] for file in (ROOT / one).rglob("*.py"))
    places = [place for file in files for place in list_places(file, str(file.relative_to(ROOT)))]
    reached = [one for one in places if known["reach"].get(f"{one.file}:{one.function}")]
    done = {Place(*json.loads(line)["place"]) for line in out.read_text().splitlines()} if out.exists() else set()
    for place in random.Random(seed).sample(reached, min(count, len(reached))):
        if place in done:
            continue
        tests = known["reach"][f"{place.file}:{place.function}"]
        noticed = run_tests(tests, BEGIN_S + EACH_S * len(tests), KILL_PLACE=json.dumps(place))
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"place": place, "seed": seed, "by": sorted(noticed)}) + "\n")
        print(f"{place.file}:{place.line} {place.mistake}: {len(noticed)} of {len(tests)}", flush=True)


def spare(known: dict[str, Any], kills: list[dict[str, Any]]) -> list[str]:
    """Tests whose functions, clauses and kills others have; taken away one by one, the one with the least first."""
    holds: dict[str, set[str]] = defaultdict(set)
    for function, tests in known["reach"].items():
        for test in tests:
            holds[test] |= {function, *CLAUSE.findall(test.partition("::")[2].partition("[")[0])}
    for number, one in enumerate(kills):
        for test in holds.keys() & one["by"]:
            holds[test].add(f"kill {number}")
    carriers: dict[str, set[str]] = defaultdict(set)
    for test, things in holds.items():
        for thing in things:
            carriers[thing].add(test)
    gone = []
    for test in sorted(holds, key=lambda one: (len(holds[one]), one)):
        if all(len(carriers[thing]) > 1 for thing in holds[test]):
            gone.append(test)
            for thing in holds[test]:
                carriers[thing].discard(test)
    return gone


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser("kill_matrix", None, __doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("reach", "kill", "spare"))
    parser.add_argument("known", type=Path)
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--under", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    given = parser.parse_intermixed_args()
    if given.command == "reach":
        reach(given.known, given.under, given.rest)
        return
    known = json.loads(given.known.read_text(encoding="utf-8"))
    kills = Path(given.rest[0])
    if given.command == "kill":
        kill(known, kills, given.seed, given.count)
    else:
        print(*spare(known, [json.loads(line) for line in kills.read_text().splitlines()]), sep="\n")


if __name__ == "__main__":
    main()

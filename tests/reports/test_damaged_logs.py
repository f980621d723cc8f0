"""Logs of a run that are damaged accuse nobody: what cannot be judged is not judged, and whose log it is is said.

A small real run of each protocol is damaged in every way, log by log; all that comes of it is judged as runs of one
trace.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import real_logs

from statemachines import cli
from statemachines.drivers.lives import begin_log
from statemachines.kernel import ConfigurationError
from statemachines.trace import fault_row
from statemachines.trace.log import read_log
from statemachines.trace.parquet import TraceWriter
from statemachines_reports.damage.log_damage import ACTS, damage_logs
from statemachines_reports.pipeline import analyze
from statemachines_reports.trace_set import read_real_run

PROTOCOLS = ("cursor_recovery", "missed_samples", "persistent_sessions", "sequence_windows", "shared_subscriptions")

UNMISSED = {
    "cursor_recovery": {"nemesis~1", "reader-1~1"},
    "missed_samples": {"cache-1~1", "publisher-2~1", "subscriber-1~1"},
    "persistent_sessions": {"nemesis~1", "a~2"},
    "sequence_windows": {"subscriber-1~1"},
    "shared_subscriptions": set(),
}
"""Logs that no other log speaks of: without them the answer is the one that they would not have changed."""


def record(protocol, folder):
    """The logs of a real run; those over zenoh in a process of their own, whose threads end with it."""
    if protocol == "missed_samples":
        subprocess.run([sys.executable, real_logs.__file__, protocol, str(folder)], check=True, timeout=180)
    else:
        asyncio.run(getattr(real_logs, protocol)(folder))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """protocol -> the logs of its run, recorded once: name of a log without what chance gave it -> its path."""

    @cache
    def logs_of(protocol):
        folder = tmp_path_factory.mktemp(protocol) / "trace"
        record(protocol, folder)
        return {read_log(path).head.life.partition(".")[0]: path for path in sorted(folder.glob("*.ndjson"))}

    return logs_of


def halved(lines):
    return lines[: 1 + len(lines) // 2]


def torn(lines):
    return [*lines[: len(lines) // 2], lines[len(lines) // 2][:-9]]


def without_end(lines):
    return lines[:-1] if b'{"end":' in lines[-1] else lines


def holed(at):
    """Twenty lines out of the middle of a log that nobody has sealed."""

    def cut(lines):
        place = 1 + (len(lines) - 1) * at // 7
        return [*lines[:place], *without_end(lines)[place + 20 :]]

    return cut


DAMAGES = {
    **{f"holed {at}": holed(at) for at in range(1, 7)},
    "missing": lambda lines: [],
    "halved": halved,
    "torn": torn,
    "without its end": without_end,
    "a row short": lambda lines: lines[: -2 if b'{"end":' in lines[-1] else -1],
}


def damaged(logs, folder):
    """(damage, log) -> the folder of the logs of the run, of which this one is damaged so."""
    found = {}
    for place, (name, path) in enumerate(logs.items()):
        lines = path.read_bytes().splitlines(keepends=True)
        for damage, act in DAMAGES.items():
            kept = act(lines)
            if kept == lines or (not kept and damage != "missing"):
                continue
            to = found[damage, name] = folder / f"{damage} {place}"
            shutil.copytree(path.parent, to)
            (to / path.name).write_bytes(b"".join(kept))
            if not kept:
                (to / path.name).unlink()
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_D_212_damaged_logs_of_a_real_run_accuse_nobody_and_are_named(tmp_path, recorded, protocol):
    """Each log in turn is missing, cut in half, within a line, before its end, or a row before it."""
    logs = recorded(protocol)
    cases = {("whole", ""): next(iter(logs.values())).parent, **damaged(logs, tmp_path)}
    (tmp_path / "merged").mkdir()
    with TraceWriter(tmp_path / "merged", "damaged") as writer:
        for number, folder in enumerate(cases.values()):
            writer.add(*read_real_run(folder, number))
    found = analyze(tmp_path / "merged", tmp_path / "report", spark=False)
    places = list(cases)
    accused = {(*places[one["run"]], one["check"], one["detail"]) for one in found.tables["findings"]}
    assert accused == set()
    lacking = {}
    for line in found.tables["absent"]:
        lacking.setdefault(places[line["run"]], []).append(line["log"])
    assert lacking.pop(("whole", ""), []) == []
    silent = {case for case in cases if case[0] != "whole"} - lacking.keys()
    assert silent == {("missing", name) for name in UNMISSED[protocol]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_log_that_is_there_twice_and_rows_that_are_twice_in_one_are_refused(tmp_path, recorded, protocol):
    path = next(path for name, path in recorded(protocol).items() if not name.startswith(("nemesis", "forwarder")))
    shutil.copytree(path.parent, tmp_path / "trace")
    copy = shutil.copy(path, tmp_path / "trace" / "copy.ndjson")
    with pytest.raises(ConfigurationError, match=f"are both the log of {path.stem}: keep the one that is whole"):
        read_real_run(tmp_path / "trace")
    Path(copy).unlink()
    (tmp_path / "trace" / path.name).write_bytes(path.read_bytes() * 2)
    with pytest.raises(ConfigurationError, match=rf"{path.name}.*line \d+"):
        read_real_run(tmp_path / "trace")


@pytest.mark.parametrize("kind", sorted(ACTS))
@pytest.mark.parametrize("protocol", ["cursor_recovery", "shared_subscriptions"])
def test_D_310_logs_that_are_damaged_are_refused_or_not_judged(tmp_path, recorded, protocol, kind):
    folder = next(iter(recorded(protocol).values())).parent
    for seed in range(3):
        out = tmp_path / str(seed)
        damage_logs(folder, kind, seed, out)
        try:
            found = analyze(out, tmp_path / "report", spark=False)
        except ConfigurationError:
            assert kind in ("log-twice", "log-of-another-run", "two-stores")
            continue
        assert kind in ("log-missing", "log-halved", "log-torn")
        assert found.is_held, found.tables["findings"]
        missed = found.absent or {
            path.stem.partition(".")[0] for path in folder.glob("*") if not (out / path.name).exists()
        }
        assert found.absent or missed <= UNMISSED[protocol]


@pytest.mark.parametrize(("lines", "rows"), [((0, 1, 1, 2, 3), 3), ((0, 2, 3), 1)])
def test_a_row_that_is_twice_in_a_log_or_left_out_is_refused(tmp_path, lines, rows):
    """Read on, the rows would say that a node did twice, or never, what it did once."""
    with begin_log(tmp_path, "a~1") as log:
        log.write([fault_row(1, "a", "pause"), fault_row(2, "a", "resume")])
    written = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(written[line] for line in lines))
    with pytest.raises(ConfigurationError, match=rf"has {rows} rows, and 2 by its end: restore it"):
        read_log(log.path)


def test_what_was_cut_off_is_not_judged_and_the_exit_code_says_so(tmp_path, recorded, capsys):
    path = recorded("shared_subscriptions")["consumer-1~1"]
    shutil.copytree(path.parent, tmp_path / "trace")
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "trace" / path.name).write_bytes(b"".join(lines[:-1]))
    code = cli.run(["analyze", str(tmp_path / "trace"), "--out", str(tmp_path / "out"), "--engine=local"])
    said = capsys.readouterr()
    assert code == cli.Exit.INCONCLUSIVE
    assert f"inconclusive: there is no log of the end of {path.stem}" in said.err
    verdicts = {line.split()[0]: line for line in said.out.splitlines() if " looked at " in line}
    assert verdicts["duplicates"].endswith(f": not judged: no log of the end of {path.stem}")
    assert verdicts["assignments"].split()[2] == "held"


def test_logs_beside_a_trace_are_refused_with_both_names(tmp_path, recorded):
    path = recorded("sequence_windows")["forwarder~1"]
    analyze(path.parent, tmp_path / "report", spark=False)
    merged = tmp_path / "report" / "merged"
    shutil.copy(path, merged)
    with pytest.raises(
        ConfigurationError, match=r"holds logs \(forwarder~1\.ndjson\) beside a trace \(trace-.*give each a folder"
    ):
        analyze(merged, tmp_path / "again", spark=False)

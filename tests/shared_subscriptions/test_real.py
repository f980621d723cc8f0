"""The demo's real part, small: processes, a join, a SIGKILL; timers are a tenth of the defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from statemachines.demo.protocol import DemoStage
from statemachines.demo.shared_subscriptions import DEMO, real
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.trace.log import find_unended, find_unlogged, merge, read_logs

TENTH = {
    field: getattr(Configuration(), field) // 10 for field in Configuration.__struct_fields__ if field.endswith("_ms")
}


AGAIN = re.compile(r"got again what (\S+) had finished")


def lapsed(rows: list[tuple[Any, ...]]) -> set[str]:
    """The consumers that were too slow for half a second of validity, as they are on a busy machine: they lapse as if
    something had been done to them."""
    timers = [row for row in rows if row[4] == "timer"]
    own = {row[1] for row in timers if row[2].endswith("/borrower") and row[7] == "destroyed"}
    return own | {
        row[3].partition(":")[2].partition("~")[0]
        for row in timers
        if row[2].endswith("/member") and row[7] in ("lapsed", "gone")
    }


def is_excused(line: str, slow: set[str]) -> bool:
    found = AGAIN.search(line)
    return found is not None and found[1] in slow


def test_a_group_survives_a_sigkill_a_pause_a_leave_and_the_death_of_its_leading_host(tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.txt").write_text("".join(f"{number}: line {line}\n" for line in range(400)))
    config = tmp_path / "fast.toml"
    config.write_text("".join(f"{key} = {value}\n" for key, value in TENTH.items()))
    said: list[str] = []
    stage = DemoStage("real", tmp_path / "out", 1, DEMO.options(str(folder)), said.append, lambda done, total: None)
    came = real.GroupRun(stage, config=config).run()
    logs = read_logs(tmp_path / "out" / "trace")
    assert (find_unended(logs), find_unlogged(logs)) == ([], [])
    rows = list(merge(logs))
    assert [line for line in came["wrong"] if not is_excused(line, lapsed(rows))] == []
    assert (came["lines"], came["acknowledged"], came["topics"], came["lost"]) == (4_800, 4_800, 12, 0)
    assert came["got"] == came["lines"] + came["duplicates"]
    assert any("SIGKILL to consumer-2" in line for line in said)
    assert any("SIGKILL to leader-1, which leads" in line for line in said)
    faults = [(row[5], row[1]) for row in rows if row[4] == "fault"]
    assert sorted(faults) == [
        ("join", "consumer-4"),
        ("kill", "consumer-2"),
        ("kill", "leader-1"),
        ("pause", "consumer-3"),
        ("resume", "consumer-3"),
        ("unsubscribe", "consumer-1"),
    ]
    assert {row[1] for row in rows if row[2].endswith("/leader") and row[7] == "leading"} == {
        "leader-1",
        "leader-2",
    }

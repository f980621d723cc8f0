"""The demo's real part, small: processes, a join, a SIGKILL; timers are a tenth of the defaults."""

from __future__ import annotations

from pathlib import Path

from statemachines.demo.shared_subscriptions import real
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.trace.log import merge, read_logs

TENTH = {
    field: getattr(Configuration(), field) // 10 for field in Configuration.__struct_fields__ if field.endswith("_ms")
}


def test_a_group_survives_a_sigkill_a_pause_a_leave_and_the_death_of_its_leading_host(tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.txt").write_text("".join(f"{number}: line {line}\n" for line in range(400)))
    config = tmp_path / "fast.toml"
    config.write_text("".join(f"{key} = {value}\n" for key, value in TENTH.items()))
    said: list[str] = []
    came = real.run(tmp_path / "out", folder, said.append, lambda done, total: None, config=config)
    assert came.wrong == []
    assert (came.lines, came.acknowledged, came.topics) == (4_800, 4_800, 12)
    assert came.got == came.lines + came.duplicates
    assert any("SIGKILL to consumer-2" in line for line in said)
    assert any("SIGKILL to leader-1, which leads" in line for line in said)
    rows = list(merge(read_logs(tmp_path / "out" / "trace")))
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


def test_a_short_input_is_published_slowly_enough_to_kill_somebody_in_the_middle() -> None:
    assert [real.rate_for(total) for total in (1, 3, 40, 4_800, 25_000)] == [1, 1, 10, 1_200, 1_500]

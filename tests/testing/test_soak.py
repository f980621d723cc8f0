"""The soak: one small round of everything, and what it writes down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[2] / "tools" / "soak.py"


@pytest.mark.long
def test_one_round_does_something_of_everything_and_goes_on_from_the_last(tmp_path):
    log = tmp_path / "out" / "soak.jsonl"
    log.parent.mkdir()
    log.write_text('{"seed":0}\n')
    command = [sys.executable, str(SOAK), "--minutes", "0", "--seeds", "1", "--frames", "500", "--inputs", "200",
               "--examples", "2", "--crashes", "2", "--lives", "20", "--states", "5000", "--twice", "1",
               "--damages", "1", "--hurts", "2", "--storm", "1", "--slow-samples", "0", "--topics", "50",
               "--cluster", "0", "--managers", "3", "--breaks", "200"]  # fmt: skip
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "0 violations" in ended.stdout
    _, last = (json.loads(line) for line in log.read_text().splitlines())
    assert (last["seed"], last["rounds"], last["runs"], last["real_rounds"], last["frames"]) == (1, 1, 2, 1, 500)
    assert (last["violations"], last["lines"]) == (0, 1_800)
    assert min(last["faults"], last["delivered"], last["steps_judged"], last["frames_refused"], last["moves"]) > 0
    assert last["restored"] == 220
    assert last["explored"] > 500
    assert last["bugs_found"] == 1
    assert 0 < last["damages_seen"] <= last["damages"]
    assert (last["crash_runs"], last["lives"]) == (2, 20)
    assert min(last["lives_killed"], last["through_queue"]) > 0
    assert (last["nodes_hurt"], last["hurt_on_postgres"], last["hurt_in_a_run"]) == (2, 2, 2)
    assert "2 faults of nodes of sessions and their store (2 on PostgreSQL; 2 in one run)" in ended.stdout
    assert last["through_sessions"] > 10
    assert last["hurt_sharing"] + last["calm_moves"] >= 1
    assert last["through_groups"] > 10
    assert last["many_topics"] == 55
    assert sum(last[name] for name in ("kills", "stops", "cuts", "partitions", "hostile_connections")) > 0

"""Sessions that share streams of groups: nodes are killed and ended, clients leave and are taken over, and what comes
is judged by who knows what publishers and clients know; a longer run is tools/soak.py's."""

from __future__ import annotations

import asyncio

import pytest
from carried_workload import CarriedWorkload
from run import play

from statemachines.testing.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def stores(request, tmp_path):
    """Of sessions and of streams."""
    if request.param == "sqlite":
        yield str(tmp_path / "sessions.db"), str(tmp_path / "messages.db")
        return
    with PostgresServer() as server:
        yield server.database("sessions"), server.database("streams")


@pytest.mark.parametrize(
    "moves", [["leave", "end"], pytest.param(["leave", "take over", "end"], marks=pytest.mark.long)], ids=len
)
def test_PS_261_PS_264_PS_287_streams_go_on_without_gap_and_in_the_calm_without_repetition(tmp_path, stores, moves):
    sessions, streams = stores
    workload = CarriedWorkload(tmp_path, sessions, 1, streams=streams)
    asyncio.run(play(workload, ["storm", "kill", "calm", *(f"calm {move}" for move in moves)]))
    assert workload.judge() == []
    assert workload.done.total() == 1 + len(moves)
    assert workload.tally()["given"]

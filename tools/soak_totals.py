"""Totals: what a soak has done, in a round or in all of them, and where its files are."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

OUT = Path("out/soak")


def empty_folder(name: str = "") -> Path:
    """The folder of that name below OUT, with nothing in it."""
    folder = (OUT / name).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


class Totals(msgspec.Struct):
    """What was done: in a round, or in all of them."""

    seed: int = 0
    rounds: int = 0
    runs: int = 0
    faults: int = 0
    delivered: int = 0
    real_rounds: int = 0
    kills: int = 0
    leader_kills: int = 0
    stops: int = 0
    cuts: int = 0
    partitions: int = 0
    hostile_connections: int = 0
    lines: int = 0
    duplicates: int = 0
    steps_judged: int = 0
    frames: int = 0
    frames_refused: int = 0
    moves: int = 0
    damages: int = 0
    damages_seen: int = 0
    restored: int = 0
    explored: int = 0
    bugs_found: int = 0
    crash_runs: int = 0
    calls_broken_off: int = 0
    lives: int = 0
    lives_killed: int = 0
    through_queue: int = 0
    nodes_hurt: int = 0
    through_sessions: int = 0
    hurt_on_postgres: int = 0
    hurt_in_a_run: int = 0
    mqtt_nodes_killed: int = 0
    mqtt_void: int = 0
    mqtt_repeats: int = 0
    through_mqtt: int = 0
    hurt_sharing: int = 0
    calm_moves: int = 0
    through_groups: int = 0
    over_slow_link: int = 0
    many_topics: int = 0
    claims_lost: int = 0
    cut_off: int = 0
    through_relays: int = 0
    leaders_paused: int = 0
    on_cluster: int = 0
    workers_killed: int = 0
    violations: int = 0

    def add(self, other: Totals) -> None:
        """Field by field; `seed` is that of the last, `hurt_in_a_run` the most that there were in one."""
        most = max(self.hurt_in_a_run, other.hurt_in_a_run)
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field) if field != "seed" else other.seed)
        self.hurt_in_a_run = most

    def count_violations(self, *what: str, again: str = "") -> None:
        """Count them, and say them; `again`: the command that repeats them."""
        self.violations += len(what)
        if what and again:
            what = (*what, f"repeat it with: {again}")
        for line in what:
            print(line, file=sys.stderr, flush=True)

    def summary(self) -> str:
        """All of it, in a few lines."""
        t = self
        return "\n".join(
            (
                f"{t.rounds} rounds: {t.runs} simulated runs, {t.faults:,} faults, {t.delivered:,} messages",
                f"{t.real_rounds} real rounds: {t.lines:,} messages, {t.duplicates:,} of them twice; {t.kills} "
                f"SIGKILLs ({t.leader_kills} of leader hosts), {t.stops} SIGSTOPs, {t.cuts} cuts, "
                f"{t.partitions} partitions, {t.hostile_connections:,} hostile connections; {t.steps_judged:,} steps "
                "judged",
                f"{t.frames:,} fuzzed inputs, {t.frames_refused:,} refused; {t.moves:,} moves under Hypothesis",
                f"{t.damages:,} damages done to traces, {t.damages_seen:,} seen by judges",
                f"{t.restored:,} inputs of processes that were made anew from their value",
                f"{t.explored:,} states explored again, {t.bugs_found} planted bugs found",
                f"{t.crash_runs:,} crash runs of the queue; {t.calls_broken_off:,} calls broken off; "
                f"{t.lives:,} processes came to one, {t.lives_killed:,} were "
                f"killed, {t.through_queue:,} messages came through",
                f"{t.nodes_hurt:,} faults of nodes of sessions and their store ({t.hurt_on_postgres:,} on PostgreSQL; "
                f"{t.hurt_in_a_run:,} in one run), {t.through_sessions:,} messages came through",
                f"{t.mqtt_nodes_killed:,} kills and stops of nodes that MQTT clients were at "
                f"({t.mqtt_void:,} more met no client), {t.through_mqtt:,} messages came through "
                f"({t.mqtt_repeats:,} again, from their publishers)",
                f"{t.hurt_sharing:,} faults of nodes and stores of sessions that share streams, {t.calm_moves:,} moves "
                f"in the calm; {t.through_groups:,} messages came through",
                f"{t.over_slow_link:,} samples came over links that were cut and came back slow",
                f"{t.many_topics:,} messages of groups that started on many topics at once; "
                f"their leaders lost {t.claims_lost} claims",
                f"{t.cut_off} times members were cut off the leading host; {t.through_relays:,} messages came through; "
                f"{t.leaders_paused} leading hosts stood still",
                f"{t.on_cluster:,} runs made and judged on a cluster, {t.workers_killed} workers of it killed",
                f"{t.violations} violations",
            )
        )

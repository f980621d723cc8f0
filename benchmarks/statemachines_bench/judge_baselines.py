"""Judge baselines: the checks of a trace as one would write them in Polars or DuckDB's SQL, over the same files.

Each function takes trace files and gives {check: how many are wrong} for the checks `rows`, `continuity`,
`exclusivity` and `messages`, as `statemachines_reports.judge` counts them (exclusive hand-over).  The tables of the
machines are joined as a table of what may be: (machine, event, source, row, dest).  Of `messages` the baselines do what
joins say: a message arrives, or is lost, as it was sent, by whom, and to whom; a step takes what arrived then.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from statemachines.kernel import Fsm, name_of

Counts = dict[str, int]
Legal = tuple[str, str, str, int, str]
"""machine, event, source, row, dest."""

NUMBERED: Final = 1 << 40
"""Messages of nodes have numbers from here on."""

EQUAL: Final = ("event", "key", "term", "grant", "first", "last")
"""What is equal in the rows of a message."""

COLUMNS: Final = ("machine", "event", "source", "row", "dest")


def legal_steps(machines: tuple[Fsm[Any], ...]) -> list[Legal]:
    """Every step that the tables allow."""
    steps: list[Legal] = []
    for fsm in {fsm.full_name: fsm for machine in machines for fsm in machine.family()}.values():
        for line in fsm.lines:
            for state in line.sources if line.kind != "refuse" else ():
                source = str(state.value)
                dest = source if line.dest is None else str(line.dest.value)
                steps.append((fsm.full_name, name_of(line.event), source, line.number, dest))
        for event in fsm.alphabet:
            for state in fsm.states:
                cell = fsm.cell(state, event)
                if cell and all(line.when is not None for line in cell):
                    steps.append((fsm.full_name, name_of(event), str(state.value), -1, str(state.value)))
    return steps


def initial_states(machines: tuple[Fsm[Any], ...]) -> dict[str, str]:
    """Machine -> its first state."""
    return {fsm.full_name: str(fsm.initial.value) for machine in machines for fsm in machine.family()}


def _tables(machines: tuple[Fsm[Any], ...]) -> tuple[pa.Table, pa.Table]:
    """What may be, and where machines begin."""
    legal = pa.table(dict(zip(COLUMNS, map(list, zip(*legal_steps(machines), strict=True)), strict=True)))
    legal = legal.set_column(3, "row", legal.column("row").cast(pa.int32()))
    initial = initial_states(machines)
    return legal, pa.table({"machine": list(initial), "initial": list(initial.values())})


def polars_judge(
    files: list[Path],
    machines: tuple[Fsm[Any], ...],
) -> Counts:
    """By Polars, with what is known of the files: they are in the order of (run, seq), so nothing is sorted."""
    import polars as pl

    trace = pl.scan_parquet(files)
    steps = trace.filter(pl.col("kind").is_in(["step", "timer"]))
    kinds = dict(trace.collect_schema())
    legal, initial = (_like(pl.from_arrow(table), kinds) for table in _tables(machines))
    wrong = steps.join(legal, on=list(COLUMNS), how="anti").select(pl.len())
    before = pl.col("dest").shift(1).over("run", "instance")
    broken = (  # a join keeps no order, so what comes before is looked up first
        steps.select("machine", "source", before=before)
        .join(initial, on="machine", how="left")
        .filter(pl.col("source").ne_missing(pl.coalesce("before", "initial")))
        .select(pl.len())
    )
    told = (pl.col("kind") == "tell") & (pl.col("event") == "deliver")
    reader = ["run", "key", "instance"]
    owners = (
        trace.filter(pl.col("machine") == "shared_subscriptions/session", told | (pl.col("event") == "install"))
        .with_columns(life=(pl.col("event") == "install").cum_sum().over(reader))
        .filter(pl.col("kind") == "tell")
        .group_by(*reader, "life")
        .agg(begin=pl.col("seq").min(), end=pl.col("seq").max())
    )
    latest = pl.col("end").cum_max().shift(1).over("run", "key", order_by="begin")
    overlaps = owners.with_columns(latest=latest).filter(pl.col("begin") <= pl.col("latest")).select(pl.len())
    found = pl.collect_all([wrong, broken, overlaps, *_polars_messages(trace)], engine="streaming")
    counts = [int(one.item()) for one in found]
    return dict(zip(("rows", "continuity", "exclusivity", "messages"), (*counts[:3], sum(counts[3:])), strict=True))


def _polars_messages(trace: Any) -> list[Any]:
    """How many rows of messages are wrong, and how many steps take what did not arrive."""
    import polars as pl

    numbered = trace.filter(pl.col("msg") >= NUMBERED)
    sent = numbered.filter(pl.col("kind") == "send").select("run", "msg", "seq", "instance", "peer", *EQUAL)
    moved = numbered.filter(pl.col("kind").is_in(["deliver", "drop", "duplicate"]))
    both = moved.join(sent, on=["run", "msg"], how="left", suffix="_sent")
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_sent")) for name in EQUAL)
    elsewhere = (pl.col("peer") != pl.col("instance_sent")) | (pl.col("instance") != pl.col("peer_sent"))
    is_other = (
        pl.when(pl.col("kind") == "deliver").then(elsewhere).otherwise(pl.col("instance") != pl.col("instance_sent"))
    )
    late = pl.col("seq_sent").is_null() | (pl.col("seq_sent") > pl.col("seq"))
    steps = numbered.filter(pl.col("kind").is_in(["step", "timer"]))
    arrived = numbered.filter(pl.col("kind") == "deliver")
    return [
        both.filter(late | differs | is_other).select(pl.len()),
        steps.join(arrived, on=["run", "msg", "node", "t_ns"], how="anti").select(pl.len()),
    ]


def _like(table: Any, kinds: dict[str, Any]) -> Any:
    """The table with its texts as the trace has them (categories, not strings), so that a join compares integers."""
    wanted = {"initial": kinds["source"], **kinds}
    return table.cast({name: wanted[name] for name in table.columns}).lazy()


def duckdb_judge(files: list[Path], machines: tuple[Fsm[Any], ...]) -> Counts:
    """By DuckDB's SQL, on all cores."""
    import duckdb

    legal, initial = _tables(machines)
    connection = duckdb.connect()
    connection.register("legal", legal)
    connection.register("initial", initial)
    names = "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in files) + "]"
    connection.execute(f"CREATE VIEW trace AS SELECT * FROM read_parquet({names})")
    found = {check: connection.execute(query).fetchall()[0][0] for check, query in QUERIES.items()}
    connection.close()
    return found


QUERIES: Final = {
    "rows": """
        SELECT count(*) FROM trace ANTI JOIN legal USING (machine, event, source, "row", dest)
        WHERE kind IN ('step', 'timer')""",
    "continuity": """
        SELECT count(*) FROM (
            SELECT machine, source, lag(dest) OVER (PARTITION BY run, instance ORDER BY seq) AS before
            FROM trace WHERE kind IN ('step', 'timer')
        ) AS step LEFT JOIN initial USING (machine)
        WHERE source IS DISTINCT FROM coalesce(before, "initial")""",
    "exclusivity": """
        WITH told AS (
            SELECT run, key, instance, seq, kind,
                   count(*) FILTER (event = 'install') OVER (PARTITION BY run, key, instance ORDER BY seq) AS life
            FROM trace WHERE machine = 'shared_subscriptions/session'
            AND (event = 'install' OR (kind = 'tell' AND event = 'deliver'))
        ), owner AS (
            SELECT run, key, min(seq) AS first, max(seq) AS last
            FROM told WHERE kind = 'tell' GROUP BY run, key, instance, life
        )
        SELECT count(*) FROM (
            SELECT first, max(last) OVER (
                PARTITION BY run, key ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS latest FROM owner
        ) WHERE first <= latest""",
    "messages": f"""
        WITH sent AS (SELECT * FROM trace WHERE kind = 'send' AND msg >= {NUMBERED}),
        wrong AS (
            SELECT count(*) AS rows FROM trace AS moved LEFT JOIN sent USING (run, msg)
            WHERE moved.kind IN ('deliver', 'drop', 'duplicate') AND msg >= {NUMBERED}
            AND (sent.seq IS NULL OR sent.seq > moved.seq
                 OR {" OR ".join(f'moved."{name}" IS DISTINCT FROM sent."{name}"' for name in EQUAL)}
                 OR CASE WHEN moved.kind = 'deliver'
                    THEN moved.peer <> sent.instance OR moved.instance <> sent.peer
                    ELSE moved.instance <> sent.instance END)
        ), untaken AS (
            SELECT count(*) AS rows FROM (SELECT * FROM trace WHERE kind IN ('step', 'timer') AND msg >= {NUMBERED})
            ANTI JOIN (SELECT * FROM trace WHERE kind = 'deliver') AS arrived USING (run, msg, node, t_ns)
        )
        SELECT wrong.rows + untaken.rows FROM wrong, untaken""",
}


def our_judge(files: list[Path], machines: tuple[Fsm[Any], ...]) -> Counts:
    """By ours: the functions that the Spark tasks run, on threads of this process (Arrow and NumPy let them)."""
    from statemachines_reports.lookup import Lookup

    lookup = Lookup(machines)
    counts = dict.fromkeys(QUERIES, 0)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda path: _judge_file(path, lookup), files):
            for check in counts:
                counts[check] += found[check]
    return counts


def _judge_file(path: Path, lookup: Any) -> Counts:
    from statemachines_reports.columns import NEEDED, Segment, read_columns
    from statemachines_reports.neutral.message_check import judge_messages
    from statemachines_reports.neutral.step_checks import judge_continuity, judge_rows
    from statemachines_reports.shared_subscriptions.account import judge_assignments, judge_exclusivity

    judges: dict[str, Callable[[Segment], Any]] = {
        "rows": judge_rows,
        "continuity": judge_continuity,
        "assignments": judge_assignments,
        "exclusivity": judge_exclusivity,
        "messages": partial(judge_messages, roles=()),
    }
    wrong: Counter[str] = Counter()
    for columns in read_columns(path, NEEDED):
        segment = Segment(columns, lookup, lambda run: {})
        wrong.update({name: len(judge(segment).run) for name, judge in judges.items()})
    return wrong

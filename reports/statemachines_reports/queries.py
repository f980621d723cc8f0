"""Queries: the tables of an analysis, as Spark SQL over what the tasks found; `plain` makes the same without Spark.

Views: one for each of `SHAPES`, and `setting` (`trace_set.Setting`): a line for each run.  `unit_ns` of a run is its
validity and one resend interval: the time that a fail-over may take by the configuration.
"""

from __future__ import annotations

from typing import Final

FINDINGS: Final = 40
"""So many findings of each check are kept; all are counted."""

ALL: Final = "*"
"""Stands for all scenarios together."""

SHAPES: Final = {
    "runs": "run bigint, rows bigint",
    "verdict": "check string, checked bigint, wrong bigint, waived bigint",
    "finding": "check string, run bigint, seq bigint, detail string, promised boolean",
    "stream": "run bigint, key string, published bigint, delivered bigint, duplicates bigint, acknowledged bigint, "
    "missing bigint, unknown bigint",
    "latency": "measure string, run bigint, value_ns bigint, cause string",
    "recovery": "run bigint, fault string, disturbed boolean, value_ns bigint",
    "used": "machine string, row int, source string, dest string, count bigint",
    "pair": "machine string, first int, second int, count bigint",
    "count": "run bigint, kind string, event string, count bigint",
}

FIELDS: Final = dict(field.split() for shape in SHAPES.values() for field in shape.split(", "))
"""What a task gives back is one wide table: a column for every field that some result has, and `what`, its kind."""

SETTING: Final = "run bigint, scenario string, held boolean, unit_ns bigint"

SPREAD: Final = """percentile(value_ns, 0.5) AS p50_ns, percentile(value_ns, 0.9) AS p90_ns,
               percentile(value_ns, 0.99) AS p99_ns, max(value_ns) AS max_ns"""

UNITS: Final = """percentile(value_ns / unit_ns, 0.5) AS p50_units, percentile(value_ns / unit_ns, 0.9) AS p90_units,
               percentile(value_ns / unit_ns, 0.99) AS p99_units, max(value_ns / unit_ns) AS max_units"""

ENDINGS: Final = ("heal", "restart", "resume")
"""Rows of kind fault that are none; and what begins with `end_`."""

NO_ENDING: Final = f"event NOT LIKE 'end!_%' ESCAPE '!' AND event NOT IN {ENDINGS}"

TABLES: Final = {
    "runs": "SELECT * FROM runs ORDER BY run",
    "verdicts": """
        SELECT check, sum(checked) AS checked, sum(wrong) AS wrong, sum(waived) AS waived
        FROM verdict GROUP BY check ORDER BY check""",
    "findings": f"""
        SELECT check, run, seq, detail, promised FROM (
            SELECT *, row_number() OVER (PARTITION BY check, promised ORDER BY run, seq, detail) AS place FROM finding
        ) WHERE place <= {FINDINGS} ORDER BY check, run, seq, detail""",
    "accounts": "SELECT * FROM stream ORDER BY run, key",
    "scenarios": f"""
        WITH account AS (
            SELECT run, sum(published) AS published, sum(delivered) AS delivered, sum(duplicates) AS duplicates,
                   sum(acknowledged) AS acknowledged FROM stream GROUP BY run
        ), done AS (
            SELECT run, sum(if(kind = 'fault' AND {NO_ENDING}, count, 0)) AS faults,
                   sum(if(kind = 'send', count, 0)) AS sent, sum(if(kind = 'drop', count, 0)) AS dropped,
                   sum(if(kind = 'assign', count, 0)) AS grants,
                   sum(if(kind = 'resend' AND event = 'granting', count, 0)) AS grant_again,
                   sum(if(kind = 'resend' AND event = 'revoking', count, 0)) AS revoke_again,
                   sum(if(kind = 'resend' AND event = 'revoked', count, 0)) AS revoked_again
            FROM count GROUP BY run
        ), summed AS (
            SELECT setting.scenario, count(*) AS runs, sum(if(held, 1, 0)) AS held,
                   sum(coalesce(published, 0)) AS published, sum(coalesce(delivered, 0)) AS delivered,
                   sum(coalesce(duplicates, 0)) AS duplicates, sum(coalesce(acknowledged, 0)) AS acknowledged,
                   sum(coalesce(faults, 0)) AS faults, sum(coalesce(sent, 0)) AS sent,
                   sum(coalesce(dropped, 0)) AS dropped, sum(coalesce(grants, 0)) AS grants,
                   sum(coalesce(grant_again, 0)) AS grant_again, sum(coalesce(revoke_again, 0)) AS revoke_again,
                   sum(coalesce(revoked_again, 0)) AS revoked_again
            FROM setting LEFT JOIN account ON account.run = setting.run LEFT JOIN done ON done.run = setting.run
            GROUP BY setting.scenario
        )
        SELECT *, (grant_again + revoke_again + revoked_again) / nullif(grants, 0) AS again_per_grant,
               duplicates / nullif(delivered, 0) AS duplicates_per_delivered,
               delivered / nullif(acknowledged, 0) AS delivered_per_acknowledged
        FROM summed ORDER BY scenario""",
    "latencies": f"""
        SELECT scenario, measure, count(*) AS measured, {SPREAD}, {UNITS}
        FROM (
            SELECT setting.scenario, measure, value_ns, unit_ns FROM latency JOIN setting ON setting.run = latency.run
            UNION ALL
            SELECT '{ALL}', measure, value_ns, unit_ns FROM latency JOIN setting ON setting.run = latency.run
        )
        GROUP BY scenario, measure ORDER BY scenario, measure""",
    "histograms": """
        SELECT measure, cast(floor(log10(greatest(value_ns, 1000)) * 8) AS int) AS bin, count(*) AS measured
        FROM latency GROUP BY measure, bin ORDER BY measure, bin""",
    "fail_overs": f"""
        SELECT cause AS fault, count(*) AS measured, {SPREAD}, {UNITS}
        FROM latency JOIN setting ON setting.run = latency.run
        WHERE measure = 'failover' GROUP BY cause ORDER BY cause""",
    "recoveries": f"""
        SELECT fault, count(*) AS faults, sum(if(disturbed, 1, 0)) AS disturbed, count(value_ns) AS recovered,
               {SPREAD}, {UNITS}
        FROM recovery JOIN setting ON setting.run = recovery.run GROUP BY fault ORDER BY fault""",
    "coverage": """
        SELECT machine, row, source, dest, sum(count) AS count FROM used
        GROUP BY machine, row, source, dest ORDER BY machine, row, source, dest""",
    "pairs": """
        SELECT machine, first, second, sum(count) AS count FROM pair
        GROUP BY machine, first, second ORDER BY machine, first, second""",
    "totals": "SELECT kind, event, sum(count) AS count FROM count GROUP BY kind, event ORDER BY kind, event",
    "faults": f"""
        WITH fault AS (
            SELECT run, event, sum(count) AS count FROM count WHERE kind = 'fault' AND {NO_ENDING} GROUP BY run, event
        ),
             broken AS (SELECT run FROM setting WHERE NOT held UNION SELECT run FROM finding WHERE promised),
             again AS (SELECT run, sum(duplicates) AS count FROM stream GROUP BY run),
             other AS (SELECT run, sum(if(kind = 'drop', count, 0)) AS dropped,
                              sum(if(kind = 'resend', count, 0)) AS resent FROM count GROUP BY run)
        SELECT fault.event AS fault, count(*) AS runs, sum(if(broken.run IS NULL, 1, 0)) AS held,
               sum(fault.count) AS injected,
               sum(coalesce(again.count, 0)) AS duplicates, sum(coalesce(other.dropped, 0)) AS dropped,
               sum(coalesce(other.resent, 0)) AS resent
        FROM fault LEFT JOIN again ON again.run = fault.run LEFT JOIN other ON other.run = fault.run
             LEFT JOIN broken ON broken.run = fault.run
        GROUP BY fault.event ORDER BY fault.event""",
}
"""What is made of the results."""

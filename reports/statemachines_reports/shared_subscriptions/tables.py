"""Tables of shared subscriptions: accounts, fail-overs by their cause, recoveries by the kind of fault."""

from __future__ import annotations

from typing import Final

from statemachines_reports.tables import SPREAD

TABLES: Final = {
    "accounts": """
        SELECT run, key, published, delivered, duplicates, acknowledged, missing, unknown FROM stream
        ORDER BY run, key""",
    "fail_overs": f"""
        SELECT cause AS fault, count(*) AS measured, {SPREAD}
        FROM latency JOIN setting ON setting.run = latency.run
        WHERE measure = 'failover' GROUP BY cause ORDER BY cause""",
    "recoveries": f"""
        SELECT fault, count(*) AS faults, sum(if(disturbed, 1, 0)) AS disturbed, count(value_ns) AS recovered, {SPREAD}
        FROM recovery JOIN setting ON setting.run = recovery.run GROUP BY fault ORDER BY fault""",
}

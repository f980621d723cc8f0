"""Foreign logs for tests: written as their systems would, and damaged."""

import json
from pathlib import Path

from statemachines_reports.foreign_log import judge_files
from statemachines_reports.foreign_log.log_mapping import parse_mapping

DELIVERIES = {
    "level": "deliveries",
    "time_unit": "ms",
    "columns": {"kind": "kind", "stream": "stream", "id": "id", "consumer": "who", "time": "at"},
    "deliveries": {"same": ["stream", "id"], "order": "number"},
}


def mapping(base=DELIVERIES, without=(), columns=(), rules=(), **more):
    """A mapping that differs from the base in some keys; `without` some columns."""
    plain = json.loads(json.dumps(base)) | more
    plain["columns"] = {k: v for k, v in plain["columns"].items() if k not in without} | dict(columns)
    if "deliveries" in plain:
        plain["deliveries"] |= dict(rules)
    if "time" not in plain["columns"]:
        plain.pop("time_unit", None)
    return parse_mapping(plain, "map.toml")


def row(at, kind, number, who=None, stream="s", **more):
    """A line of a delivery log."""
    return {"at": at, "kind": kind, "stream": stream, "id": number, **({"who": who} if who else {}), **more}


def consumed(who, numbers, at=100, stream="s"):
    """What a consumer logs: each number is delivered, and acknowledged a millisecond later."""
    return [
        one
        for place, number in enumerate(numbers)
        for one in (
            row(at + 2 * place, "deliver", number, who, stream),
            row(at + 2 * place + 1, "ack", number, who, stream),
        )
    ]


def published(numbers, stream="s"):
    """The log of a publisher."""
    return [row(number, "publish", number, stream=stream) for number in numbers]


def write_logs(folder, **logs):
    """Each log as a file of NDJSON; their paths."""
    paths = []
    for name, rows in logs.items():
        path = Path(folder) / f"{name}.ndjson"
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        paths.append(path)
    return paths


def verdicts(folder, given, **logs):
    """The whole verdict, and that of each check."""
    found = judge_files(write_logs(folder, **logs), given)
    return found.verdict, {one.name: one.verdict for one in found.checks}

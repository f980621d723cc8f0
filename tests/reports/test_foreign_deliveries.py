"""Delivery logs of others: what is violated is found, and what a damaged log may explain accuses nobody."""

import gzip
import tomllib

import pytest
from foreign_logs import consumed, mapping, published, row, verdicts, write_logs

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log import judge_files
from statemachines_reports.foreign_log.log_mapping import parse_mapping, read_template

COMPLETE = {"complete": True}
ONCE = {"promise": "exactly-once"}
CLEAN = {"p": published(range(1, 7)), "c1": consumed("c1", [1, 3, 5]), "c2": consumed("c2", [2, 4, 6])}


def damaged(**logs):
    return {**CLEAN, **logs}


def owned(who, owner, times):
    return [row(at, "deliver", at, who, owner=owner) for at in times]


AGAIN = damaged(c2=consumed("c2", [2, 3, 4, 6], at=200))
BOTH = {"c1": consumed("c1", [1, 2]), "c2": consumed("c2", [1, 2])}
EARLY = {"c1": [row(1, "ack", 1, "c1"), row(2, "deliver", 1, "c1")]}
MIXED = {"both": [*consumed("c1", [4, 5, 6]), *consumed("c2", [1, 2, 3], at=200)]}
ORDERED, DENSE = {"ordered": True}, {"dense": True}
LATE = {"c1": consumed("c1", [1, 3, 2])}
HOLE = {"c1": consumed("c1", [1, 2, 5])}
CUT = {"p": published([1, 2]), "c1": consumed("c1", [1, 2])[:-1]}
OWNER = {"columns": {"owner": "owner"}}
OWNED = {"c1": owned("c1", "c1/1", [1, 20]), "c2": owned("c2", "c2/2", [15, 30])}
BACK = {**OWNED, "c2": owned("c2", "c2/2", [21, 30]), "c3": owned("c3", "c1/3", [31, 40])}
DELIVERED = [*(row(at, "deliver", at, "c1") for at in (1, 2, 3)), row(4, "deliver", 2, "c1", stream="t")]
COMMITTED = [*DELIVERED, row(9, "commit", 3, "c1")]
KEYED = {"columns": {"key": "key"}, "rules": {"same": ["key"], "order": "none", **ONCE}}
TIMES = {"rules": {"order": "redis-id", "ordered": True}, **COMPLETE}
IN_ORDER = consumed("c1", [1, 3, 5])
SWAPPED = [IN_ORDER[place] for place in (0, 1, 3, 2, 4, 5)]
NUMBERED = [one | {"n": place % 4} for place, one in enumerate(consumed("c1", [1, 2, 3]))]
RUNS = {"c1": [*(one | {"run": "a"} for one in consumed("c1", [1, 2])), row(900, "deliver", 1, "c1", run="b")]}
VERDICTS = {
    # what is judged, the check ("": the whole verdict), what it says, the mapping, the logs
    "a duplicate": ("", "held", COMPLETE, AGAIN),
    "a duplicate, exactly once": ("duplicates", "VIOLATED", {"rules": ONCE, **COMPLETE}, AGAIN),
    "copies for others": ("duplicates", "held", {"rules": {"same": ["stream", "id", "consumer"], **ONCE}}, BOTH),
    "copies for one group": ("duplicates", "VIOLATED", {"rules": ONCE}, BOTH),
    "a message with a key in two streams": (
        "duplicates", "VIOLATED", KEYED,
        {"c1": [row(1, "deliver", 1, "c1", key="a"), row(2, "deliver", 7, "c1", "retry", key="a")]},
    ),
    "an early acknowledgement, or a line that is gone": ("early acks", "inconclusive", {}, EARLY),
    "an early acknowledgement": ("early acks", "VIOLATED", COMPLETE, EARLY),
    "an early acknowledgement in numbered lines": (
        "early acks", "VIOLATED", {"from_start": True, "columns": {"number": "at"}, "without": ["time"]}, EARLY,
    ),
    # What another process acknowledges says nothing of the order in which two clocks saw it.
    "an acknowledgement of another": (
        "early acks", "held", COMPLETE, {"c1": [row(5, "deliver", 1, "c1")], "c2": [row(1, "ack", 1, "c2")]},
    ),
    "a clock that is kept right": (
        "", "held", COMPLETE, {"c1": [row(1.0, "deliver", 1, "c1"), row(0.961, "ack", 1, "c1")]},
    ),
    "two consumers in a log": ("order", "held", {"rules": ORDERED, **COMPLETE}, MIXED),
    "two processes in a log": (
        "order", "held", {"rules": ORDERED, "columns": {"process": "who"}, "without": ["consumer"], **COMPLETE}, MIXED,
    ),
    "a late message": ("order", "VIOLATED", {"rules": ORDERED, **COMPLETE}, LATE),
    "a late message without an order": ("order", "counted", COMPLETE, LATE),
    "a late message, or a line that is gone": ("order", "inconclusive", {"rules": ORDERED}, LATE),
    "messages that come again": (
        "order", "held", {"rules": ORDERED, **COMPLETE}, {"c1": consumed("c1", [1, 2, 3, 2, 3, 4])},
    ),
    "a message that is taken over": (
        "order", "inconclusive", {"rules": ORDERED, **COMPLETE}, {**LATE, "c2": consumed("c2", [2], at=50)},
    ),
    "the order of two consumers": (
        "order", "held", {"rules": ORDERED, **COMPLETE},
        {"c1": consumed("c1", [3, 4]), "c2": consumed("c2", [1, 2], at=900)},
    ),
    "a hole": ("gaps", "not judged", COMPLETE, HOLE),
    "a hole in dense numbers of a log that may go on": ("gaps", "inconclusive", {"rules": DENSE}, HOLE),
    "a hole in dense numbers": ("gaps", "VIOLATED", {"rules": DENSE, **COMPLETE}, HOLE),
    "a hole that was published": ("lost", "held", COMPLETE, {**HOLE, "p": published([1, 2, 5])}),
    "an end": ("unacknowledged", "inconclusive", {}, CUT),
    "an end behind which nothing comes": ("unacknowledged", "VIOLATED", COMPLETE, CUT),
    "a commit of some": ("unacknowledged", "VIOLATED", COMPLETE, {"c1": COMMITTED}),
    "commits of all": (
        "", "held", COMPLETE,
        {"c1": [*COMMITTED, row(10, "commit", 4, "c1"), row(10, "commit", 3, "c1", stream="t")]},
    ),
    "owners without a bound of clocks": ("owners", "not judged", OWNER, OWNED),
    "owners within the error of clocks": ("owners", "held", {**OWNER, "clock_error_ms": 5}, OWNED),
    "owners beyond the error of clocks": ("owners", "VIOLATED", {**OWNER, "clock_error_ms": 4.9}, OWNED),
    "an owner that comes back": ("owners", "held", {**OWNER, "clock_error_ms": 0}, BACK),
    "owners of two groups": (
        "owners", "held", {"columns": {"owner": "owner", "group": "group"}, "clock_error_ms": 0},
        {name: [one | {"group": name} for one in rows] for name, rows in OWNED.items()},
    ),
    "a removed line": ("lost", "inconclusive", {}, damaged(c2=consumed("c2", [2, 6]))),
    "a removed line where none is missing": ("lost", "VIOLATED", COMPLETE, damaged(c2=consumed("c2", [2, 6]))),
    "swapped lines within the error of clocks": (
        "early acks", "inconclusive", {"clock_error_ms": 5, **COMPLETE}, damaged(c1=SWAPPED),
    ),
    "a late message of a clock that was set back": (
        "order", "inconclusive", {"rules": ORDERED, "clock_error_ms": 5, **COMPLETE},
        {"c1": [row(7, "deliver", 2, "c1"), row(3, "deliver", 1, "c1")]},
    ),
    "ids of times": ("order", "held", TIMES, {"c1": consumed("c1", ["9-9", "9-10", "10-0"])}),
    "late ids of times": ("order", "VIOLATED", TIMES, {"c1": consumed("c1", ["9-10", "9-9"])}),
    "a run of several": ("", "held", {"columns": {"run": "run"}, "run": "a", **COMPLETE}, RUNS),
    "no delivery": ("", "inconclusive", {}, {"c1": []}),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_a_check_accuses_only_for_what_nothing_explains(tmp_path, name):
    check, expected, given, logs = VERDICTS[name]
    verdict, checks = verdicts(tmp_path, mapping(**given), **logs)
    assert (checks[check] if check else verdict) == expected


REFUSED = {
    "swapped lines": (r"c1.ndjson line 4 is 1.000 ms before c1.ndjson line 3.*sort it", {}, damaged(c1=SWAPPED)),
    "no id of times": (r"'7': c1.ndjson line 1: must be MILLISECONDS-NUMBER", TIMES, {"c1": consumed("c1", ["7"])}),
    "two runs": (
        r"the log has 2 runs: 'a', 'b'; choose one with --run", {"columns": {"run": "run"}}, RUNS,
    ),
    "a run that is none": ("no line is of it", {"columns": {"run": "run"}, "run": "z"}, RUNS),
    "numbers that begin again": (
        r"comes after 3 .*of two runs; sort it, .*map columns.run", {"columns": {"number": "n"}}, {"c1": NUMBERED},
    ),
    "a numbered line that is twice": (
        r"0 of c1.ndjson in c1.ndjson line 2.*is there twice; remove", {"columns": {"number": "n"}},
        {"c1": [*NUMBERED[:1], *NUMBERED[:3]]},
    ),
    "two files of a process": (
        r"'c1': has lines in a.ndjson and in b.ndjson",
        {"columns": {"process": "who"}, "without": ["time", "consumer"]},
        {"a": consumed("c1", [1]), "b": consumed("c1", [2])},
    ),
    "publishes of which one says for whom": (
        r"p.ndjson line 2, and not in that of .* line 1; log it in all",
        {"rules": {"same": ["stream", "id", "consumer"]}},
        {"p": [row(1, "publish", 1), row(2, "publish", 2, "c1")]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_log_is_refused_with_the_mend(tmp_path, name):
    why, given, logs = REFUSED[name]
    with pytest.raises(ConfigurationError, match=why):
        verdicts(tmp_path, mapping(**given), **logs)


def test_a_doubled_line_is_no_second_delivery(tmp_path):
    doubled = consumed("c1", [1, 3, 5])
    doubled.insert(1, doubled[0])
    logs = damaged(c1=doubled)
    verdict, checks = verdicts(tmp_path, mapping(rules=ONCE, **COMPLETE), **logs)
    assert (verdict, checks["duplicates"], checks["equal lines"]) == ("held", "held", "counted")
    verdict, checks = verdicts(tmp_path, mapping(rules=ONCE, without=["time"], **COMPLETE), **logs)
    assert (verdict, checks["duplicates"]) == ("inconclusive", "inconclusive")


def test_a_removed_line_is_no_loss_where_lines_are_numbered(tmp_path):
    numbered = {
        name: [one | {"n": place} for place, one in enumerate(rows) if (name, one["id"]) != ("c2", 4)]
        for name, rows in CLEAN.items()
    }
    verdict, checks = verdicts(tmp_path, mapping(columns={"number": "n"}, **COMPLETE), **numbered)
    assert verdict == "inconclusive"
    assert checks["lost"] == checks["lines"] == "inconclusive"


FAN_OUT = {
    # rules, and what each of two receivers got of 1 to 6: the verdict, and the checks that are not held
    "everything": ({}, "", [1, 2, 3, 4, 5, 6], "held", {}),
    "not one in the middle": ({}, "", [1, 2, 4, 5, 6], "VIOLATED", {"lost": "VIOLATED"}),
    "not the last": ({}, "", [1, 2, 3, 4, 5], "inconclusive", {"lost": "inconclusive"}),
    "not the last, of all": ({"copies": "whole"}, "", [1, 2, 3, 4, 5], "VIOLATED", {"lost": "VIOLATED"}),
    "nothing": ({}, "t", [1], "inconclusive", {"copies": "inconclusive"}),
    "nothing of a stream of others": ({"copies": "seen"}, "t", [1], "held", {}),
    "nothing, of all": ({"copies": "all"}, "t", [1], "VIOLATED", {"copies": "VIOLATED"}),
}


@pytest.mark.parametrize("published_too", [True, False])
@pytest.mark.parametrize("name", FAN_OUT)
def test_what_one_of_two_receivers_lacks_is_a_loss(tmp_path, name, published_too):
    rules, other, got, whole, wrong = FAN_OUT[name]
    logs = {"c1": consumed("c1", range(1, 7)), "c2": consumed("c2", got, 100, other or "s")}
    if other:
        logs["c1"] += consumed("c1", got, 200, other)
    if published_too:
        logs["p"] = published(range(1, 7))
        logs["q"] = published(got, other or "s") if other else []
    else:
        wrong = {name.replace("lost", "gaps"): verdict for name, verdict in wrong.items()}
    given = mapping(rules={"same": ["stream", "id", "consumer"], "dense": True, **rules}, **COMPLETE)
    verdict, checks = verdicts(tmp_path, given, **logs)
    assert (verdict, {one: said for one, said in checks.items() if said not in ("held", "counted")}) == (whole, wrong)


TEMPLATES = {
    # what of a delivery tells two receivers apart, and what the template says of the group
    "jetstream": ("durable", {"seq": int, "stream": "s", "client": "c"}, ""),
    "kafka": ("group", {"offset": int, "topic": "s", "partition": 0, "consumer": "c", "generation": "c/1"}, "group"),
    "mqtt": ("client", {"key": str, "topic": "s"}, ""),
    "redis": ("group", {"id": "{}-0", "stream": "s", "consumer": "c"}, "group"),
}


@pytest.mark.parametrize("master", ["", "local[1]"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_sees_what_one_of_two_receivers_lost(tmp_path, name, master):
    role, fields, group = TEMPLATES[name]
    text = read_template(name).replace("complete = false", "complete = true ")
    if group:
        text = text.replace('# group = "group"', 'group = "group"').replace('"id"]', '"id", "group"]', 1)

    def lines(receiver, numbers):
        for at, number in enumerate(numbers):
            when = f"2026-01-31T23:59:59.{at:03}Z" if 'unit = "iso"' in text else at
            base = {k: v.format(number) if "{" in str(v) else v for k, v in fields.items() if v not in (int, str)}
            base |= {k: v(number) for k, v in fields.items() if v in (int, str)} | {"at": when}
            for kind in ("deliver", "ack") if receiver else ("publish",):
                yield base | {"kind": kind} | ({role: receiver} if receiver else {})

    logs = write_logs(
        tmp_path, p=lines("", range(9)), a=lines("r1", range(9)), b=lines("r2", [0, 1, 2, 5, 6, 7])
    )  # fmt: skip
    found = judge_files(logs, parse_mapping(tomllib.loads(text), "map.toml"), master)
    lost = next(one for one in found.checks if one.name == "lost")
    assert (found.verdict, lost.found, lost.checked) == ("VIOLATED", 3, 18)
    assert all("to r2" in one for one in lost.details)


def test_a_log_may_be_packed(tmp_path):
    paths = write_logs(tmp_path, p=published([1, 2]), c1=consumed("c1", [1]))
    packed = [path.with_name(f"{path.name}.gz") for path in paths]
    for path, to in zip(paths, packed, strict=True):
        to.write_bytes(gzip.compress(path.read_bytes()))
    found = [
        [(one.name, one.checked, one.found) for one in judge_files(some, mapping()).checks] for some in (packed, paths)
    ]
    assert found[0] == found[1] != []
    packed[0].write_bytes(packed[0].read_bytes()[:-9])
    with pytest.raises(ConfigurationError, match=r"p.ndjson.gz.*cannot be unpacked.*pack it anew"):
        judge_files(packed, mapping())


def damage(chance, logs, ends):
    """The logs with a line removed, doubled, swapped with the next, moved to another log, or copied there; `ends`: of
    the first and last lines, too."""
    rows, other = (logs[chance.choice(list(logs))] for _ in range(2))
    margin = 0 if ends else 1
    if len(rows) < 4:
        return
    place = chance.randrange(margin, len(rows) - 1 - margin)
    how = chance.choice(["remove", "double", "swap", "move", "copy"])
    if how == "swap":
        rows[place], rows[place + 1] = rows[place + 1], rows[place]
    elif how == "double":
        rows.insert(place, rows[place])
    elif how == "copy":
        other.append(rows[place])
    else:
        line = rows.pop(place)
        if how == "move":
            other.append(line)

"""Delivery logs of others: what is violated is found, and what a damaged log may explain accuses nobody."""

from __future__ import annotations

import gzip
import random
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


def test_a_whole_log_of_a_system_that_keeps_its_promises_holds(tmp_path):
    verdict, checks = verdicts(tmp_path, mapping(rules=ONCE, **COMPLETE), **CLEAN)
    assert verdict == "held"
    assert checks == {
        "duplicates": "held", "order": "counted", "lost": "held", "unpublished": "held", "early acks": "held",
        "unacknowledged": "held",
    }  # fmt: skip


def test_a_duplicate_violates_only_where_exactly_once_is_promised(tmp_path):
    logs = damaged(c2=consumed("c2", [2, 3, 4, 6], at=200))
    assert verdicts(tmp_path, mapping(**COMPLETE), **logs)[0] == "held"
    verdict, checks = verdicts(tmp_path, mapping(rules=ONCE, **COMPLETE), **logs)
    assert (verdict, checks["duplicates"]) == ("VIOLATED", "VIOLATED")


def test_equal_payloads_and_copies_for_others_are_no_duplicates(tmp_path):
    fan_out = {"same": ["stream", "id", "consumer"], **ONCE}
    logs = {"c1": consumed("c1", [1, 2]), "c2": consumed("c2", [1, 2])}
    assert verdicts(tmp_path, mapping(rules=fan_out), **logs)[1]["duplicates"] == "held"
    assert verdicts(tmp_path, mapping(rules=ONCE), **logs)[1]["duplicates"] == "VIOLATED"


def test_a_doubled_line_is_no_second_delivery(tmp_path):
    doubled = consumed("c1", [1, 3, 5])
    doubled.insert(1, doubled[0])
    logs = damaged(c1=doubled)
    verdict, checks = verdicts(tmp_path, mapping(rules=ONCE, **COMPLETE), **logs)
    assert (verdict, checks["duplicates"], checks["equal lines"]) == ("held", "held", "counted")
    verdict, checks = verdicts(tmp_path, mapping(rules=ONCE, without=["time"], **COMPLETE), **logs)
    assert (verdict, checks["duplicates"]) == ("inconclusive", "inconclusive")
    numbered = [one | {"n": place} for place, one in enumerate(consumed("c1", [1, 3, 5]))]
    numbered.insert(1, numbered[0])
    other = [one | {"n": place} for place, one in enumerate(published(range(1, 7)))]
    with pytest.raises(ConfigurationError, match=r"0 of c1.ndjson in c1.ndjson line 2.*is there twice; remove"):
        verdicts(tmp_path, mapping(columns={"number": "n"}), c1=numbered, p=other)


def test_a_removed_line_is_a_loss_only_where_nothing_is_missing(tmp_path):
    logs = damaged(c2=consumed("c2", [2, 6]))
    verdict, checks = verdicts(tmp_path, mapping(), **logs)
    assert (verdict, checks["lost"]) == ("inconclusive", "inconclusive")
    verdict, checks = verdicts(tmp_path, mapping(**COMPLETE), **logs)
    assert (verdict, checks["lost"]) == ("VIOLATED", "VIOLATED")
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


def test_an_acknowledgement_is_of_one_receiver(tmp_path):
    given = mapping(rules={"same": ["stream", "id", "consumer"]}, **COMPLETE)
    logs = {"c1": consumed("c1", [1, 2]), "c2": consumed("c2", [1, 2])[:-1]}
    assert verdicts(tmp_path, given, **logs)[1]["unacknowledged"] == "VIOLATED"
    logs["c2"].append(row(300, "ack", 2))
    assert verdicts(tmp_path, given, **logs)[1]["unacknowledged"] == "inconclusive"
    logs["c2"][-1] |= {"kind": "commit", "id": 3, "who": "c1"}
    assert verdicts(tmp_path, given, **logs)[1]["unacknowledged"] == "VIOLATED"
    logs["p"] = [row(1, "publish", 1), row(2, "publish", 2, "c1")]
    with pytest.raises(ConfigurationError, match=r"p.ndjson line 2, and not in that of .* line 1; log it in all"):
        verdicts(tmp_path, given, **logs)


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


def test_a_removed_delivery_whose_message_comes_again_is_no_early_acknowledgement(tmp_path):
    rows = [row(1, "ack", 1, "c1"), row(2, "deliver", 1, "c1")]
    assert verdicts(tmp_path, mapping(), c1=rows)[1]["early acks"] == "inconclusive"
    assert verdicts(tmp_path, mapping(**COMPLETE), c1=rows)[1]["early acks"] == "VIOLATED"
    numbered = mapping(from_start=True, columns={"number": "at"}, without=["time"])
    assert verdicts(tmp_path, numbered, c1=rows)[1]["early acks"] == "VIOLATED"
    # What another process acknowledges says nothing of the order in which two clocks saw it.
    apart = {"c1": [row(5, "deliver", 1, "c1")], "c2": [row(1, "ack", 1, "c2")]}
    assert verdicts(tmp_path, mapping(**COMPLETE), **apart)[1]["early acks"] == "held"


def test_swapped_lines_are_refused_where_there_are_times(tmp_path):
    rows = consumed("c1", [1, 3, 5])
    rows[2], rows[3] = rows[3], rows[2]
    with pytest.raises(ConfigurationError, match=r"c1.ndjson line 4 is 1.000 ms before c1.ndjson line 3.*sort it"):
        verdicts(tmp_path, mapping(), **damaged(c1=rows))
    tolerant = verdicts(tmp_path, mapping(clock_error_ms=5, **COMPLETE), **damaged(c1=rows))
    assert tolerant[1]["early acks"] == "inconclusive"
    moved = [row(7, "deliver", 2, "c1"), row(3, "deliver", 1, "c1")]
    ordered = mapping(rules={"ordered": True}, clock_error_ms=5, **COMPLETE)
    assert verdicts(tmp_path, ordered, c1=moved)[1]["order"] == "inconclusive"


def test_a_clock_that_is_kept_right_goes_back_a_little(tmp_path):
    rows = [row(1.0, "deliver", 1, "c1"), row(0.961, "ack", 1, "c1")]
    assert verdicts(tmp_path, mapping(**COMPLETE), c1=rows)[0] == "held"


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


def test_a_line_of_another_consumer_is_judged_as_that_consumers(tmp_path):
    rules = {"ordered": True}
    mixed = [*consumed("c1", [4, 5, 6]), *consumed("c2", [1, 2, 3], at=200)]
    verdict, checks = verdicts(tmp_path, mapping(rules=rules, **COMPLETE), both=mixed)
    assert (verdict, checks["order"]) == ("held", "held")
    by_process = mapping(rules=rules, columns={"process": "who"}, without=["consumer"], **COMPLETE)
    assert verdicts(tmp_path, by_process, both=mixed)[1]["order"] == "held"


def test_order_is_of_one_log_and_takes_redeliveries_and_takeovers_for_what_they_are(tmp_path):
    ordered, counted = mapping(rules={"ordered": True}, **COMPLETE), mapping(**COMPLETE)
    late = {"c1": consumed("c1", [1, 3, 2])}
    assert verdicts(tmp_path, ordered, **late)[1]["order"] == "VIOLATED"
    assert verdicts(tmp_path, counted, **late)[1]["order"] == "counted"
    assert verdicts(tmp_path, mapping(rules={"ordered": True}), **late)[1]["order"] == "inconclusive"
    assert verdicts(tmp_path, ordered, c1=consumed("c1", [1, 2, 3, 2, 3, 4]))[1]["order"] == "held"
    taken_over = {"c1": consumed("c1", [1, 3, 2]), "c2": consumed("c2", [2], at=50)}
    assert verdicts(tmp_path, ordered, **taken_over)[1]["order"] == "inconclusive"
    apart = {"c1": consumed("c1", [3, 4]), "c2": consumed("c2", [1, 2], at=900)}
    assert verdicts(tmp_path, ordered, **apart)[1]["order"] == "held"


def test_a_gap_is_judged_only_where_numbers_are_dense_or_publishes_are_logged(tmp_path):
    logs = {"c1": consumed("c1", [1, 2, 5])}
    assert verdicts(tmp_path, mapping(**COMPLETE), **logs)[1]["gaps"] == "not judged"
    assert verdicts(tmp_path, mapping(rules={"dense": True}), **logs)[1]["gaps"] == "inconclusive"
    assert verdicts(tmp_path, mapping(rules={"dense": True}, **COMPLETE), **logs)[1]["gaps"] == "VIOLATED"
    logged = {**logs, "p": published([1, 2, 5])}
    verdict, checks = verdicts(tmp_path, mapping(**COMPLETE), **logged)
    assert (verdict, checks["lost"], "gaps" in checks) == ("held", "held", False)


def test_ids_of_times_are_ordered_as_pairs_of_numbers(tmp_path):
    given = mapping(rules={"order": "redis-id", "ordered": True}, **COMPLETE)
    right = consumed("c1", ["9-9", "9-10", "10-0"])
    assert verdicts(tmp_path, given, c1=right)[1]["order"] == "held"
    assert verdicts(tmp_path, given, c1=consumed("c1", ["9-10", "9-9"]))[1]["order"] == "VIOLATED"
    with pytest.raises(ConfigurationError, match=r"'7': c1.ndjson line 1: must be MILLISECONDS-NUMBER"):
        verdicts(tmp_path, given, c1=consumed("c1", ["7"]))


def test_the_end_of_a_log_accuses_nobody_unless_it_is_complete(tmp_path):
    logs = {"p": published([1, 2]), "c1": consumed("c1", [1, 2])[:-1]}
    assert verdicts(tmp_path, mapping(), **logs)[1]["unacknowledged"] == "inconclusive"
    assert verdicts(tmp_path, mapping(**COMPLETE), **logs)[1]["unacknowledged"] == "VIOLATED"


def test_a_commit_acknowledges_the_smaller_numbers_of_its_stream(tmp_path):
    rows = [row(at, "deliver", at, "c1") for at in (1, 2, 3)]
    rows += [row(4, "deliver", 2, "c1", stream="t"), row(9, "commit", 3, "c1")]
    verdict, checks = verdicts(tmp_path, mapping(**COMPLETE), c1=rows)
    assert (verdict, checks["unacknowledged"]) == ("VIOLATED", "VIOLATED")
    rows += [row(10, "commit", 4, "c1"), row(10, "commit", 3, "c1", stream="t")]
    assert verdicts(tmp_path, mapping(**COMPLETE), c1=rows)[0] == "held"


def owned(who, owner, times):
    return [row(at, "deliver", at, who, owner=owner) for at in times]


def test_owners_overlap_only_beyond_the_error_of_clocks(tmp_path):
    logs = {"c1": owned("c1", "c1/1", [1, 20]), "c2": owned("c2", "c2/2", [15, 30])}
    columns = {"owner": "owner"}
    assert verdicts(tmp_path, mapping(columns=columns), **logs)[1]["owners"] == "not judged"
    assert verdicts(tmp_path, mapping(columns=columns, clock_error_ms=5), **logs)[1]["owners"] == "held"
    assert verdicts(tmp_path, mapping(columns=columns, clock_error_ms=4.9), **logs)[1]["owners"] == "VIOLATED"
    back = {**logs, "c2": owned("c2", "c2/2", [21, 30]), "c3": owned("c3", "c1/3", [31, 40])}
    assert verdicts(tmp_path, mapping(columns=columns, clock_error_ms=0), **back)[1]["owners"] == "held"


def test_a_message_with_a_key_is_the_same_in_every_stream(tmp_path):
    given = mapping(columns={"key": "key"}, rules={"same": ["key"], "order": "none", **ONCE})
    rows = [row(1, "deliver", 1, "c1", key="a"), row(2, "deliver", 7, "c1", "retry", key="a")]
    assert verdicts(tmp_path, given, c1=rows)[1]["duplicates"] == "VIOLATED"


def test_rows_of_several_runs_are_not_judged_together(tmp_path):
    rows = [one | {"run": "a"} for one in consumed("c1", [1, 2])] + [row(900, "deliver", 1, "c1", run="b")]
    with pytest.raises(ConfigurationError, match=r"the log has 2 runs: 'a', 'b'; choose one with --run"):
        verdicts(tmp_path, mapping(columns={"run": "run"}), c1=rows)
    assert verdicts(tmp_path, mapping(columns={"run": "run"}, run="a", **COMPLETE), c1=rows)[0] == "held"
    with pytest.raises(ConfigurationError, match="no line is of it"):
        verdicts(tmp_path, mapping(columns={"run": "run"}, run="z"), c1=rows)


def test_a_log_without_a_delivery_is_inconclusive(tmp_path):
    assert verdicts(tmp_path, mapping(), c1=[])[0] == "inconclusive"


def test_a_number_that_begins_again_is_another_run(tmp_path):
    rows = [one | {"n": place % 4} for place, one in enumerate(consumed("c1", [1, 2, 3]))]
    with pytest.raises(ConfigurationError, match=r"comes after 3 .*of two runs; sort it, .*map columns.run"):
        verdicts(tmp_path, mapping(columns={"number": "n"}), c1=rows)


def test_nothing_says_which_file_of_a_process_comes_first(tmp_path):
    given = mapping(columns={"process": "who"}, without=["time", "consumer"])
    with pytest.raises(ConfigurationError, match=r"'c1': has lines in a.ndjson and in b.ndjson"):
        verdicts(tmp_path, given, a=consumed("c1", [1]), b=consumed("c1", [2]))


def test_a_last_line_that_was_cut_is_left_out_and_a_log_that_has_one_is_not_complete(tmp_path):
    paths = write_logs(tmp_path, p=published([1]), c1=[*consumed("c1", [1]), row(500, "deliver", 17, "c1")])
    paths[1].write_text(paths[1].read_text()[:-20])
    found = judge_files(paths, mapping(**COMPLETE))
    assert (found.torn, found.rows, found.verdict) == (1, 3, "inconclusive")
    assert found.checks[-1].name == "ends"


def run_system(chance):
    """The logs of a system that keeps every promise: each message is delivered once, in order, and acknowledged."""
    logs = {"p": [], "c1": [], "c2": []}
    for at, number in enumerate(range(1, 13)):
        logs["p"].append(row(10 * at, "publish", number))
        logs[chance.choice(["c1", "c2"])].append(number)
    return {name: rows if name == "p" else consumed(name, rows, at=200) for name, rows in logs.items()}


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


PROMISES = {"promise": "exactly-once", "ordered": True, "dense": True}


@pytest.mark.parametrize("kind", ["as it is", "with times that may go back", "numbered and complete"])
def test_no_damage_accuses_a_system_that_keeps_its_promises(tmp_path, kind):
    """Sixty damaged logs of each kind: held, inconclusive or refused, and never violated."""
    chance = random.Random(kind)
    given = {
        "as it is": mapping(rules=PROMISES, from_start=True),
        "with times that may go back": mapping(rules=PROMISES, from_start=True, clock_error_ms=1_000),
        "numbered and complete": mapping(rules=PROMISES, columns={"number": "n"}, **COMPLETE),
    }[kind]
    seen = set()
    for _ in range(60):
        logs = run_system(chance)
        logs = {name: [one | {"n": place} for place, one in enumerate(rows)] for name, rows in logs.items()}
        for _ in range(chance.choice([1, 1, 2, 4])):
            damage(chance, logs, ends="complete" not in kind)
        try:
            seen.add(verdicts(tmp_path, given, **logs)[0])
        except ConfigurationError:
            seen.add("refused")
    assert "VIOLATED" not in seen
    assert "inconclusive" in seen
    assert "refused" in seen or kind == "with times that may go back"

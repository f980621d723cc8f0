"""Mappings and logs that are wrong: one line that names the thing and the mend; and the command around the judge."""

import json

import pytest
from foreign_logs import DELIVERIES, consumed, mapping, row, write_logs

from statemachines.cli import run
from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log import judge_files, log_file
from statemachines_reports.foreign_log.log_mapping import parse_mapping, read_template

MACHINE = {"level": "events", "machine": "shop:make_order", "columns": {"event": "what", "instance": "order"}}


@pytest.fixture(autouse=True)
def _beside_the_examples(monkeypatch):
    monkeypatch.syspath_prepend("examples")


WRONG_MAPPINGS = {
    "no level": ({"columns": {}}, "missing required field `level`"),
    "another level": (
        {"level": "guesses", "columns": {}},
        "level = 'guesses' is unknown; there are: deliveries, events, states",
    ),
    "unknown column": (
        DELIVERIES | {"columns": {"topic": "t"}},
        "key 'topic' in columns is unknown; .*there are: .*event, state",
    ),
    "mistyped key": (
        DELIVERIES | {"deliveries": {"same": ["id"], "order": "none", "denes": True}},
        "key 'denes' in deliveries is unknown; did you mean 'dense'",
    ),
    "two for one": (DELIVERIES | {"columns": {"id": ["a", "b"]}}, r"columns.id names several columns \(a and b\)"),
    "one for two": (
        DELIVERIES | {"columns": {"kind": "k", "stream": "x", "id": "x"}},
        "column 'x' stands for stream and for id; each needs a column of its own",
    ),
    "no unit": ({**DELIVERIES, "time_unit": ""}, "time_unit is not there; say s, ms, us, ns or iso"),
    "no rules": ({**DELIVERIES, "deliveries": None}, "needs .deliveries. with same and order"),
    "equal payloads": (
        DELIVERIES | {"deliveries": {"same": ["stream"], "order": "none"}},
        "equal payloads are not the same message",
    ),
    "same of nothing": (DELIVERIES | {"deliveries": {"same": [], "order": "none"}}, "deliveries.same is empty"),
    "same unmapped": (DELIVERIES | {"deliveries": {"same": ["key"], "order": "none"}}, "columns.key is not mapped"),
    "same by time": (
        DELIVERIES | {"deliveries": {"same": ["time"], "order": "none"}},
        "has 'time'; it may list stream",
    ),
    "dense times": (
        DELIVERIES | {"deliveries": {"same": ["stream", "id"], "order": "redis-id", "dense": True}},
        'dense needs order = "number"',
    ),
    "machine of deliveries": (DELIVERIES | {"machine": "borrower"}, "not looked at on level deliveries"),
    "no machine": ({**MACHINE, "machine": ""}, "needs machine: protocol/name, or module:ATTRIBUTE"),
    "stream of a machine": (
        MACHINE | {"columns": {"event": "e", "stream": "s"}},
        "columns.stream is not looked at on level events",
    ),
    "two meanings": (MACHINE | {"values": {"event": {"pay": ["x"], "ship": ["x"]}}}, "'x' stands for pay and for ship"),
    "ignored meaning": (
        MACHINE | {"values": {"event": {"pay": "x"}}, "ignore": ["x"]},
        "stands for pay, and is ignored",
    ),
    "values of nothing": (MACHINE | {"values": {"colour": {}}}, "there are event, state and kind"),
    "clock": (DELIVERIES | {"clock_error_ms": -1}, "clock_error_ms must be at least 0"),
    "bound": (MACHINE | {"sets_max": 0}, "sets_max must be from 1 to 65536"),
    "run": (DELIVERIES | {"run": "a"}, "columns.run does not say where"),
}


@pytest.mark.parametrize("name", WRONG_MAPPINGS)
def test_a_wrong_mapping_is_named_with_its_mend(name):
    plain, why = WRONG_MAPPINGS[name]
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse_mapping(plain, "map.toml")
    assert str(caught.value).startswith("--map = 'map.toml'")
    assert "\n" not in str(caught.value)


LINE = json.dumps(row(1, "deliver", 1, "c1"))
WRONG_LOGS = {
    "no JSON": ("log.ndjson", f"{LINE}\n{{at:1}}\n{LINE}\n", "line 2 is no JSON"),
    "no object": ("log.ndjson", f"{LINE}\n[1]\n", "line 2 is no JSON object, but a list"),
    "empty line": ("log.ndjson", f"{LINE}\n\n{LINE}\n", "line 2 is empty; remove it"),
    "nested": ("log.ndjson", LINE.replace('"s"', '{"a": 1}') + "\n", "line 1: 'stream' is nested"),
    "two types": (
        "log.ndjson",
        f"{LINE}\n" + LINE.replace('"id": 1', '"id": "x"') + "\n",
        "line 2: 'id' has another type",
    ),
    "no number": (
        "log.ndjson",
        LINE.replace('"id": 1', '"id": "x"') + "\n",
        "line 1 of log.ndjson has 'x': must be whole",
    ),
    "unknown kind": (
        "log.ndjson",
        LINE.replace("deliver", "yield") + "\n",
        "line 1 of log.ndjson is none of publish.*map it",
    ),
    "no stream": (
        "log.ndjson",
        f"{LINE.replace('stream', 'strom')}\n" * 9,
        "column = 'stream': unknown; did you mean 'strom'",
    ),
    "null stream": (
        "log.ndjson",
        LINE + "\n" + LINE.replace('"s"', "null") + "\n",
        "line 2 of log.ndjson has none; log it",
    ),
    "a time that is text": (
        "log.ndjson",
        LINE.replace('"at": 1', '"at": "noon"') + "\n",
        "has 'noon': must be numbers of ms",
    ),
    "a time out of range": (
        "log.ndjson",
        LINE.replace('"at": 1', '"at": 1e300') + "\n",
        "too large; is the unit right",
    ),
    "a deep line": ("log.ndjson", LINE[:-1] + ', "x": ' + "[" * 200_000 + "]" * 200_000 + "}\n", "line"),
    "a time beyond 64 bits": (
        "log.csv",
        "at,kind,stream,id,who\n9223372036854775,ack,s,1,c\n",
        "too large; is the unit right",
    ),
    "binary": ("log.ndjson", "\0\1\2", "line 1 is no JSON object: is it NDJSON"),
    "two columns of a name": ("log.csv", "id,id\n1,2\n", "has two columns 'id'; give one of them another name"),
    "short row": ("log.csv", "at,kind,stream,id,who\n1,deliver,s,1,c1\n1,ack\n", "line 3 has 2 cells, and the head 5"),
    "no rows": ("log.csv", "at,kind,stream,id,who", "has no line below its head"),
    "other ending": ("log.txt", LINE, "has an ending that says nothing; name it .ndjson, .jsonl, .csv, .parquet"),
    "no Parquet": ("log.parquet", LINE, "is not a Parquet file, or damaged"),
}


@pytest.mark.parametrize("name", WRONG_LOGS)
def test_a_wrong_log_is_named_with_its_line_and_mend(tmp_path, name):
    file, text, why = WRONG_LOGS[name]
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=why) as caught:
        judge_files([path], mapping())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "LINE_MAX", 1_000)
    monkeypatch.setattr(log_file, "BLOCK", 300)
    path = tmp_path / "log.ndjson"
    path.write_text(f"{LINE}\n" * 50 + "{" * 5_000)
    with pytest.raises(ConfigurationError, match="line 51 is longer than 1000 bytes; is it a log of lines"):
        judge_files([path], mapping())


def test_the_same_file_is_named_once_and_missing_ones_are_named(tmp_path):
    (path,) = write_logs(tmp_path, a=consumed("c1", [1]))
    with pytest.raises(ConfigurationError, match=r"is the same file as .*; name it once"):
        judge_files([path, tmp_path / "." / "a.ndjson"], mapping())
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        judge_files([tmp_path / "none.ndjson"], mapping())
    with pytest.raises(ConfigurationError, match="is no file; name files"):
        judge_files([tmp_path], mapping())


def test_values_and_ignored_rows_are_as_the_mapping_says(tmp_path):
    values = {"kind": {"deliver": ["got", "claimed"], "ack": ["done"]}}
    rows = [row(1, "got", 1, "c1"), row(2, "beat", 1, "c1"), row(3, "done", 1, "c1")]
    (path,) = write_logs(tmp_path, a=rows)
    found = judge_files([path], mapping(values=values, ignore=["beat"], complete=True))
    assert (found.verdict, found.rows) == ("held", 2)
    with pytest.raises(ConfigurationError, match=r"--map values.kind = 'delivre': unknown; did you mean 'deliver'"):
        judge_files([path], mapping(values={"kind": {"delivre": "got"}}))


def test_guards_and_events_that_the_machine_does_not_have_are_named(tmp_path):
    (path,) = write_logs(tmp_path, a=[{"what": "pay", "order": 1, "ok": True}])
    with pytest.raises(ConfigurationError, match=r"guard = 'is_coverd': unknown; did you mean 'is_covered'"):
        judge_files([path], parse_mapping(MACHINE | {"guards": {"is_coverd": "ok"}}, "map.toml"))
    (path,) = write_logs(tmp_path, a=[{"what": "pai", "order": 1}])
    with pytest.raises(ConfigurationError, match=r"event = 'pai': in line 1 of a.ndjson is none of pay, ship"):
        judge_files([path], parse_mapping(MACHINE, "map.toml"))


def test_the_command_refuses_in_one_line(tmp_path, capsys):
    (path,) = write_logs(tmp_path, a=consumed("c1", [1]))
    given = tmp_path / "map.toml"
    given.write_text("level = [")
    for arguments, why in (
        ([str(path)], "--map = '': is missing: give a mapping; --template NAME prints one"),
        ([str(path), "--map", str(given)], "is not a mapping (TOML)"),
        ([str(path), "--map", str(tmp_path / "none.toml")], "cannot be read: No such file"),
        (["--template", "kafca"], "did you mean 'kafka'"),
        ([str(path), "--template", "redis"], "prints a mapping and judges nothing"),
    ):
        assert run(["judge", *arguments]) == 2
        said = capsys.readouterr().err
        assert why in said
        assert said.count("\n") == 1


def test_a_template_that_is_not_there_is_not_looked_for_elsewhere():
    with pytest.raises(ConfigurationError):
        read_template("../templates/redis")

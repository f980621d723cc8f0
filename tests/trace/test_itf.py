"""The Informal Trace Format: what is written is read again, and what is no trace is refused in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from statemachines.cli import run
from statemachines.kernel import ConfigurationError
from statemachines.trace import itf

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3).map(Map)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(VALUES)
def test_a_value_is_the_same_once_it_was_written_and_read(value):
    encoded = itf.encode_itf(value)
    assert itf.make_canonical(json.loads(json.dumps(encoded))) == encoded


@pytest.mark.parametrize(
    ("read", "same"),
    [
        ({"#set": [{"#bigint": "2"}, {"#bigint": "1"}, 2]}, {"#set": [1, 2]}),
        ({"#map": [["b", 1], ["a", 2]]}, {"#map": [["a", 2], ["b", 1]]}),
        ({"#tup": [1, True]}, [1, True]),
        ({"tag": "Open", "value": {"#tup": []}}, "Open"),
        ({"tag": "Open", "value": {}}, "Open"),
        ({"#bigint": "-007"}, -7),
    ],
)
def test_equal_values_have_one_form(read, same):
    assert itf.make_canonical(read) == itf.make_canonical(same)


GOOD = {"vars": ["x"], "states": [{"x": 1}]}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("nonsense", "is not an ITF trace"),
        ("[]", 'it must be an object with "vars" and "states"'),
        ({"vars": ["x"]}, 'it must be an object with "vars" and "states"'),
        ({**GOOD, "vars": []}, '"vars" must be a list of names'),
        ({**GOOD, "vars": ["x", "x"]}, '"vars" must be different names, 1000 at most'),
        ({**GOOD, "states": []}, '"states" must be a list of 1 to 10000 states'),
        ({**GOOD, "states": [GOOD["states"][0]] * 10_001}, '"states" must be a list of 1 to 10000 states'),
        ({**GOOD, "states": [7]}, "state 0 must be an object"),
        ({**GOOD, "states": [{}]}, "state 0 gives no value to 'x'"),
        ({**GOOD, "states": [{"x": 1, "y": 2}]}, "state 0 has a variable 'y' that is not among the vars"),
        ({**GOOD, "states": [{"x": 1.5}]}, "state 0: 1.5 is no value of the format"),
        ({**GOOD, "states": [{"x": {"#bigint": "1e9"}}]}, "is no value of the format"),
        ({**GOOD, "states": [{"x": {"#what": 1}}]}, "is no value of the format"),
        ({**GOOD, "states": [{"x": {"#map": [[1, 2, 3]]}}]}, "is no value of the format"),
        ({**GOOD, "loop": 1}, '"loop" must be the number of a state, 0 to 0'),
        ({**GOOD, "loop": True}, '"loop" must be the number of a state'),
        ('{"vars": ["x"], "states": [{"x": ' + "[" * 66 + "]" * 66 + "}]}", "nested more than 64 deep"),
        ('{"vars": ["x"], "states": [{"x": ' + "[" * 100_000, "is not an ITF trace"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, capsys, content, wrong):
    path = tmp_path / "bad.itf.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigurationError) as raised:
        itf.read_itf(path)
    assert wrong in str(raised.value)
    assert run(["itf", str(path), "assignment"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line

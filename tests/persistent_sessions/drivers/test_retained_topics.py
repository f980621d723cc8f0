"""Which retained topics a filter brings: as a trie of routes says, and no more are looked at than are wanted."""

from __future__ import annotations

import sqlite3
from itertools import product

import pytest

from statemachines.drivers.persistent_sessions import route_rows
from statemachines.drivers.persistent_sessions.route_rows import find_retained
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie

LEVELS = ("", "a", "b.", "é\n", "$a", "+", "#")
TOPICS = ["/".join(one) for length in (1, 2, 3) for one in product(LEVELS[:5], repeat=length)]


class CountedSql:
    """A table of topics; `looks`: how many rows were read."""

    now_ns = 1

    def __init__(self, topics):
        self.looks = 0
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE TABLE retained (topic BLOB PRIMARY KEY, payload, qos, until_ns, head)")
        rows = [(one.encode(), b"x", 1, 0, None) for one in topics]
        self._database.executemany("INSERT INTO retained VALUES (?, ?, ?, ?, ?)", rows)

    def all(self, statement, **values):
        found = self._database.execute(statement.replace("@", ""), values).fetchall()
        self.looks += len(found)
        return found


@pytest.mark.parametrize("topic_filter", ["#", "a/#", "+/b.", "a/+/a", "a/b.", "$a/#"])
def test_topics_are_looked_at_piece_by_piece(monkeypatch, topic_filter):
    monkeypatch.setattr(route_rows, "TOPICS_MAX", 4)
    trie = RouteTrie()
    trie.put("s", topic_filter, 0)
    found = [one.payload.topic for one in find_retained(CountedSql(TOPICS), topic_filter)]
    assert found == sorted(filter(trie.match, TOPICS), key=str.encode)

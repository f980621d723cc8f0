"""Many rows in one statement of SQLite are the rows that were given."""

import sqlite3

from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.drivers.persistent_sessions.sqlite import SqliteSql

PUT = "INSERT INTO @taken VALUES (:session, :writer, :epoch, :number) ON CONFLICT DO NOTHING"
ROWS = st.lists(
    st.tuples(st.sampled_from((b"x", b"y")), st.integers(0, 1), st.sampled_from((None, b"", b"z")), st.just(1.5))
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from((1, 40, 1_000)))
def test_rows_that_share_values_are_stored_as_they_are(few, times):
    rows = few * times
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE taken (session, writer, epoch, number)")
    sql = SqliteSql(connection, 0, 0, 0)
    sql.put_many(PUT, rows)
    assert connection.execute("SELECT * FROM taken ORDER BY rowid").fetchall() == rows

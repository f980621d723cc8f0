"""Statement plans: what the stores ask of a database, statement by statement, and how the database finds the rows.

The connections of the real stores are watched while a test drives them: each statement is explained by the database
itself, where it is asked first and with its values.  So a statement that is new cannot escape; one that no test drives
is found by its place in the code.
"""

from __future__ import annotations

import ast
import re
import sqlite3
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg

from statemachines.drivers.sql.loop_connection import LoopConnection

LITERALS = {17: r"'\x00'::bytea", 20: "0::bigint", 1001: "'{}'::bytea[]", 1016: "'{}'::bigint[]"}
"""A value of each type, as the server numbers them."""

EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
"""How statements begin that read rows."""

NO_ROWS = ("check_power",)
"""Functions that are not looked at: settings are no rows."""

CALLS = ("execute", "executemany", "all", "run", "put_many")
"""Methods that take a statement ..."""
FUNCTIONS = ("one", "all_of", "_number")
"""... and functions that do."""
HOLDERS = ("sql", "connection")
"""What has such a method, or is given to such a function."""


class Access(NamedTuple):
    """How a statement finds rows of a `table`: by equal columns of a key, and then one that is `within` bounds ("":
    none).  Neither: it reads all of them.  `index`: one that we have made ("": a key of the table).  Columns of an
    index that do not follow each other are no way to find a row: what lies between is read."""

    table: str
    equal: tuple[str, ...] = ()
    within: str = ""
    index: str = ""


class Plan(NamedTuple):
    """The accesses of a statement; `is_sorted`: rows are sorted before the first is given out."""

    accesses: tuple[Access, ...]
    is_sorted: bool = False


class Plans:
    """Statement -> plan; the unique keys of each table; the places in the code that have asked anything."""

    def __init__(self):
        self.plans: dict[str, Plan] = {}
        self.keys: dict[str, set[frozenset[str]]] = {}
        self.places: set[tuple[str, int]] = set()

    def note(self, statement, explain):
        """It is asked now; `explain()` makes its plan."""
        frame = sys._getframe(2)
        while frame is not None:
            self.places.add((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        if statement.lstrip().startswith(EXPLAINED) and statement not in self.plans:
            self.plans[statement] = Plan(())  # what explaining asks is not explained
            self.plans[statement] = explain()

    def never_asked(self, *modules):
        """Where these modules ask something that nobody has driven them to ask."""
        found = []
        for module in modules:
            tree = ast.parse(Path(module.__file__).read_text())
            tree.body = [one for one in tree.body if getattr(one, "name", "") not in NO_ROWS]
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            went_out = {ast.dump(one.args[0]) for one in calls if _expects(one) and self._was_asked(module, one)}
            for node in calls:
                if _asks(node) and not self._was_asked(module, node) and ast.dump(_statement(node)) not in went_out:
                    found.append(f"{module.__name__}:{node.lineno}")
        return found

    def _was_asked(self, module, node):
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        return any((module.__file__, line) in self.places for line in lines)

    def unbounded(self, one_row, bounded, paged):
        """Statements that read more than is declared: `one_row`: tables of one; `bounded`: access (or access, and words
        of the statement) -> why there are few; `paged`: accesses of statements that stop at a limit."""
        return {
            statement: faults
            for statement, plan in self.plans.items()
            if (faults := self._faults(statement, plan, one_row, bounded, paged))
        }

    def _faults(self, statement, plan, one_row, bounded, paged):
        faults = []
        for access in plan.accesses:
            if access.table in one_row or access in bounded:
                continue
            if any((access, words) in bounded for words in _words(bounded) if words in statement):
                continue
            if any(key <= set(access.equal) for key in self.keys.get(access.table, ())):
                continue
            if access in paged and "LIMIT" in statement and not plan.is_sorted:
                continue
            faults.append(f"it reads {access}{', and sorts them' if plan.is_sorted else ''}")
        return faults


def _words(bounded):
    return {key[1] for key in bounded if not isinstance(key, Access)}


def _asks(node):
    function = node.func
    if isinstance(function, ast.Name):
        return function.id in FUNCTIONS and bool(node.args) and _name(node.args[0]) in HOLDERS
    return isinstance(function, ast.Attribute) and function.attr in CALLS and _name(function.value) in HOLDERS


def _expects(node):
    """It sends a statement whose answer is read later."""
    return isinstance(node.func, ast.Attribute) and node.func.attr == "expect" and _name(node.func.value) in HOLDERS


def _statement(node):
    return node.args[1 if isinstance(node.func, ast.Name) else 0]


def _name(node):
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@contextmanager
def watched():
    """The plans of whatever is asked of a database within."""
    plans = Plans()
    connect = sqlite3.connect

    class Watched(sqlite3.Connection):
        def execute(self, statement, values=()):
            plans.note(statement, lambda: _sqlite_plan(plans, super(Watched, self), statement, values))
            return super().execute(statement, values)

        def executemany(self, statement, rows):
            rows = list(rows)
            if rows:
                plans.note(statement, lambda: _sqlite_plan(plans, super(Watched, self), statement, rows[0]))
            return super().executemany(statement, rows)

    execute, execute_many = psycopg.Cursor.execute, psycopg.Cursor.executemany
    explaining = []

    def note(cursor, statement, values):
        if explaining or not isinstance(statement, str):
            return
        explaining.append(statement)
        try:
            plans.note(statement, lambda: _postgres_plan(plans, cursor.connection, statement, values))
        finally:
            explaining.pop()

    def watched_execute(cursor, statement, values=None, **given):
        note(cursor, statement, values)
        return execute(cursor, statement, values, **given)

    def watched_many(cursor, statement, rows, **given):
        rows = list(rows)
        note(cursor, statement, rows[0])
        return execute_many(cursor, statement, rows, **given)

    ask = LoopConnection.ask

    async def watched_ask(connection, statement, values):
        answer = await ask(connection, statement, values)
        text = statement.text.decode()
        bound = re.sub(r"\$(\d+)", lambda found: LITERALS[statement.types[int(found[1]) - 1]], text)
        driver = connection._connection.connection.driver_connection
        explaining.append(text)
        try:
            plans.note(text, lambda: _postgres_plan(plans, driver, bound, None))
        finally:
            explaining.pop()
        return answer

    def watch(factory):
        """What a store's own connection asks in the end."""
        return Watched if factory is None else type("WatchedToo", (factory, Watched), {})

    sqlite3.connect = lambda *given, **named: connect(*given, **named | {"factory": watch(named.get("factory"))})
    psycopg.Cursor.execute, psycopg.Cursor.executemany = watched_execute, watched_many
    LoopConnection.ask = watched_ask
    try:
        yield plans
    finally:
        sqlite3.connect = connect
        psycopg.Cursor.execute, psycopg.Cursor.executemany = execute, execute_many
        LoopConnection.ask = ask


# -- SQLite ---------------------------------------------------------------------------------------------------------

FOUND = re.compile(r"^(?:SCAN|SEARCH) (\S+)(?: USING .*?(?:INDEX (\S+)|KEY))?(?: \((.*)\))?(?: LEFT-JOIN)?$")
TERM = re.compile(r"\(?([a-z_, ]+|<expr>)\)?(=|<|>)")


def _sqlite_plan(plans, connection, statement, values):
    tables = _sqlite_tables(plans, connection)
    names = {table: table for table in tables}
    for table, name in re.findall(r"(?:FROM|JOIN|INTO|UPDATE) (\w+) AS (\w+)", statement):
        names[name] = table
    accesses, is_sorted = [], False
    for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall():
        is_sorted |= "TEMP B-TREE FOR ORDER" in detail
        found = FOUND.match(detail)
        if found and found[1] in names:
            table = names[found[1]]
            index = "" if (found[2] or "").startswith("sqlite_autoindex") else found[2] or ""
            accesses.append(_access(table, _terms(found[3] or "", tables[table]), index))
    return Plan(tuple(accesses), is_sorted)


def _terms(condition, rowid):
    for part in condition.split(" AND "):
        found = TERM.match(part)
        if found:
            column = found[1].split(",")[0].strip().replace("rowid", rowid)
            yield column.strip("<>"), found[2]


def _access(table, terms, index):
    terms = list(terms)
    within = [column for column, sign in terms if sign != "="]
    equal = tuple(column for column, sign in terms if sign == "=")
    return Access(table, equal, within[0] if within else "", index)


def _sqlite_tables(plans, connection):
    """Table -> the column that stands for its rowid."""
    tables = {}
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        key = [name for _, name, *_, place in sorted(columns, key=lambda one: one[-1]) if place]
        tables[table] = key[0] if len(key) == 1 else "rowid"
        keys = plans.keys.setdefault(table, set())
        keys.add(frozenset(key))
        for _, index, unique, _, partial in connection.execute(f"PRAGMA index_list({table})").fetchall():
            if unique and not partial:
                keys.add(frozenset(one[2] for one in connection.execute(f"PRAGMA index_info({index})").fetchall()))
    return tables


# -- PostgreSQL -----------------------------------------------------------------------------------------------------

INDEXES = """
SELECT index.relname, owner.relname, indexed.indisunique AND indexed.indpred IS NULL,
       array_agg(attribute.attname ORDER BY attribute.attnum)::text[]
FROM pg_index AS indexed JOIN pg_class AS index ON index.oid = indexed.indexrelid
JOIN pg_class AS owner ON owner.oid = indexed.indrelid
JOIN pg_attribute AS attribute ON attribute.attrelid = indexed.indexrelid
WHERE owner.relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'gapless%')
GROUP BY 1, 2, 3
"""


def _postgres_plan(plans, connection, statement, values):
    """With the reading of whole tables made as dear as can be: it is chosen where there is no other way; and without
    bitmaps, which an empty table suggests, so that what has an order by its key is not sorted."""
    indexes = {name: (table, columns) for name, table, _, columns in connection.execute(INDEXES)}
    for _, table, unique, columns in connection.execute(INDEXES):
        plans.keys.setdefault(table, set()).update([frozenset(columns)] if unique else [])
    connection.execute("SET enable_seqscan = off")
    connection.execute("SET enable_bitmapscan = off")
    try:
        ((found,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", values).fetchall()
    finally:
        connection.execute("RESET enable_seqscan")
        connection.execute("RESET enable_bitmapscan")
    nodes = list(_nodes(found[0]["Plan"]))
    accesses = [postgres_access(node, indexes) for node in nodes if "Scan" in node["Node Type"]]
    is_sorted = any("Sort" in node["Node Type"] for node in nodes)
    return Plan(tuple(one for one in accesses if one is not None), is_sorted)


def _nodes(node):
    yield node
    for one in node.get("Plans", ()):
        yield from _nodes(one)


def postgres_access(node, indexes):
    """How a node of a plan finds its rows (None: by no index that is ours); `indexes`: name -> table and columns."""
    if node["Node Type"] == "Seq Scan":
        return Access(node["Relation Name"])
    if node.get("Index Name") not in indexes:
        return None
    table, columns = indexes[node["Index Name"]]
    condition = re.sub(r"'(?:[^']|'')*'", "?", node.get("Index Cond", ""))
    open_end = re.search(r"ROW\((?:\w+\.)?(\w+)[^)]*\) <", condition)  # such a bound ends no scan
    equal, within = [], ""
    for column in columns:
        if open_end and column == open_end[1]:
            break
        if re.search(rf"\b{column} = ", condition):
            equal.append(column)
            continue
        if re.search(rf"\b{column} [<>]|ROW\((\w+\.)?{column}\b" if column != "expr" else r"\) [<>]", condition):
            within = column
        break
    index = "" if node["Index Name"].endswith(("_pkey", "_key")) else node["Index Name"]
    return Access(table, tuple(equal), within, index)

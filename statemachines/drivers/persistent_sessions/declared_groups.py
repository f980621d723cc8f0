"""Declared groups: those that only a front's subscriptions declared, and that end when nobody subscribes them."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.group_rows import group_filters
from statemachines.drivers.persistent_sessions.host_request import DeclareGroup, ListIdleGroups
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie
from statemachines.drivers.persistent_sessions.shared_message_codec import name_group, spell_group
from statemachines.drivers.persistent_sessions.sql import Sql, read_one
from statemachines.persistent_sessions.shared_group import IS_ENDING, age_group, is_kept, refuse_declaration

ALL: Final = "SELECT filter, idle_ns FROM @declared_groups ORDER BY filter"
KNOWN: Final = "SELECT idle_ns FROM @declared_groups WHERE filter = :filter"
COUNT: Final = "SELECT count(*) FROM @declared_groups"
PUT: Final = (
    "INSERT INTO @declared_groups VALUES (:filter, :idle_ns)"
    " ON CONFLICT (filter) DO UPDATE SET idle_ns = excluded.idle_ns"
)


def declare_group(sql: Sql, asked: DeclareGroup, is_known: bool) -> str:
    """Why the group may not be declared; "": it may.  `is_known`: it is declared, by whomever."""
    group = name_group(asked.filter).encode()
    its = read_one(sql, KNOWN, filter=group)
    idle_ns = None if its is None else int(its[0])
    others = set(group_filters(sql, asked.session.encode())) - {asked.filter}
    ((count,),) = sql.all(COUNT)
    refusal = refuse_declaration(idle_ns, is_known, len(others), count)
    if not refusal and is_kept(idle_ns, is_known):
        sql.run(PUT, filter=group, idle_ns=0)
    return refusal


def list_idle_groups(sql: Sql, asked: ListIdleGroups, trie: RouteTrie) -> tuple[str, ...]:
    """The filters of groups that end now, and of those whose end was begun."""
    ages: dict[str, int] = {}
    for group, idle_ns in sql.all(ALL):
        spellings = spell_group(bytes(group).decode())
        is_subscribed = any(map(trie.sessions_of, spellings))
        ages[spellings[0]] = new_ns = age_group(idle_ns, is_subscribed, sql.now_ns, asked.expiry_ms)
        if new_ns != idle_ns:
            sql.run(PUT, filter=group, idle_ns=new_ns)
    return tuple(one for one, idle_ns in ages.items() if idle_ns == IS_ENDING)


def forget_group(sql: Sql, topic_filter: str) -> None:
    """What is kept of a group that was destroyed."""
    group = name_group(topic_filter).encode()
    for table in ("declared_groups", "carried", "returned"):
        sql.run(f"DELETE FROM @{table} WHERE filter = :filter", filter=group)

"""Declared groups: those that only a front's subscriptions declared, how many there may be, and when they end."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.group_rows import group_filters
from statemachines.drivers.persistent_sessions.host_request import DeclareGroup, ListIdleGroups
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie
from statemachines.drivers.persistent_sessions.shared_message import name_group, spell_group
from statemachines.drivers.persistent_sessions.sql import Sql, one
from statemachines.persistent_sessions.times import MS

GROUPS_MAX: Final = 1_000
"""Groups of a store that subscriptions declared."""

SESSION_GROUPS_MAX: Final = 100
"""Filters of groups that one session subscribes."""

ENDING: Final = -1
"""`idle_ns` of a group that is being destroyed."""

ENDS: Final = "the group is ending"
"""Why it may not be declared just now."""

WORDS: Final = "may not have more"
"""In every refusal for a bound."""

KNOWN: Final = "SELECT idle_ns FROM @declared_groups WHERE filter = :filter"
COUNT: Final = "SELECT count(*) FROM @declared_groups"
PUT: Final = (
    "INSERT INTO @declared_groups VALUES (:filter, :idle_ns)"
    " ON CONFLICT (filter) DO UPDATE SET idle_ns = excluded.idle_ns"
)


def declare_group(sql: Sql, asked: DeclareGroup, is_known: bool) -> str:
    """Why the group may not be declared; "": it may.  `is_known`: it is declared, by whomever."""
    others = [each for each in group_filters(sql, asked.session.encode()) if each != asked.filter]
    if len(others) >= SESSION_GROUPS_MAX:
        return f"the session has {SESSION_GROUPS_MAX} filters of groups, and {WORDS}; unsubscribe one"
    group = name_group(asked.filter).encode()
    found = one(sql, KNOWN, filter=group)
    if found is None and is_known:
        return ""
    if found is not None and found[0] == ENDING:
        return ENDS
    count = one(sql, COUNT)
    assert count is not None
    if found is None and count[0] >= GROUPS_MAX:
        return f"the store has {GROUPS_MAX} groups that subscriptions declared, and {WORDS}"
    sql.run(PUT, filter=group, idle_ns=0)
    return ""


def list_idle_groups(sql: Sql, asked: ListIdleGroups, trie: RouteTrie) -> tuple[str, ...]:
    """The filters of groups that end now, and of those whose end was begun."""
    ending = []
    for group, idle_ns in sql.all("SELECT filter, idle_ns FROM @declared_groups ORDER BY filter"):
        spellings = spell_group(bytes(group).decode())
        now_idle_ns = _age(sql, idle_ns, any(map(trie.sessions_of, spellings)), asked.expiry_ms)
        if now_idle_ns != idle_ns:
            sql.run(PUT, filter=group, idle_ns=now_idle_ns)
        if now_idle_ns == ENDING:
            ending.append(spellings[0])
    return tuple(ending)


def _age(sql: Sql, idle_ns: int, is_subscribed: bool, expiry_ms: int) -> int:
    """What `idle_ns` is from now on."""
    if idle_ns == ENDING:
        return ENDING
    if is_subscribed:
        return 0
    since_ns = idle_ns or sql.now_ns
    return ENDING if idle_ns and sql.now_ns - since_ns >= expiry_ms * MS else since_ns


def forget_group(sql: Sql, topic_filter: str) -> None:
    """What is kept of a group that was destroyed."""
    group = name_group(topic_filter).encode()
    for table in ("declared_groups", "carried", "returned"):
        sql.run(f"DELETE FROM @{table} WHERE filter = :filter", filter=group)

"""Topic filters: whether one contains another (MQTT 5, sections 4.7 and 4.8).

contains_filter("a/#", "a/+/b")      True: whatever the second matches, the first matches
contains_filter("a/#", "#")          False
contains_filter("a/+", "a/b")        True: a topic is a filter that matches itself alone
"""

from __future__ import annotations

from typing import Final

GROUP_PREFIXES: Final = ("$share/", "$shared/", "$queue/")
"""How filters of groups begin; all three mean the same."""


def contains_filter(outer: str, inner: str) -> bool:
    """Whether `outer` matches every topic that `inner` matches.

    A filter of a group is contained by filters of groups alone: of the same one, or of all (`$share/+/jobs/#`).
    """
    outer_group, outer_filter = _split_group(outer)
    inner_group, inner_filter = _split_group(inner)
    is_any = outer_group == "+" and inner_group is not None
    return (is_any or outer_group == inner_group) and _contains_levels(outer_filter.split("/"), inner_filter.split("/"))


def _split_group(topic_filter: str) -> tuple[str | None, str]:
    """The group that it is of (None: of none), and the filter of its topics."""
    if not topic_filter.startswith(GROUP_PREFIXES):
        return None, topic_filter
    group, _, rest = topic_filter.partition("/")[2].partition("/")
    return group, rest


def _contains_levels(outer: list[str], inner: list[str]) -> bool:
    if inner == ["#"]:
        inner = ["+", "#"]  # a topic has one level at least
    if inner[0].startswith("$") and outer[0] in ("+", "#"):
        return False  # no wildcard of the first level matches what belongs to the server
    for place, level in enumerate(outer):
        if level == "#":
            return True
        if place == len(inner) or inner[place] == "#":
            return False
        if level not in ("+", inner[place]):
            return False
    return len(inner) == len(outer)

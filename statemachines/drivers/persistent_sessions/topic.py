"""Filters of groups, at nodes that know no groups; the rules of all topics and filters are in `drivers.topic`."""

from __future__ import annotations

from statemachines.drivers.topic import check_filter, is_shared
from statemachines.kernel import ConfigurationError


def check_private(topic_filter: str) -> str:
    """A filter that a session may subscribe where no groups are: itself; raises `ConfigurationError` for one of a group
    (PS-220)."""
    if is_shared(check_filter(topic_filter)):
        raise unknown_group(topic_filter)
    return topic_filter


def unknown_group(topic_filter: str) -> ConfigurationError:
    """Why a node without groups does nothing for a filter of one, and what to do about it."""
    rule = "is of a group that shares, and this node knows no groups: run it with --group-leader and --group-store"
    return ConfigurationError("filter", topic_filter, f"{rule}; without a session of its own SharedSession reads it")

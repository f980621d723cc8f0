"""Which sessions a topic is for: the trie finds what the rules of MQTT say, level by level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.drivers.persistent_sessions import route_trie
from statemachines.drivers.persistent_sessions.route_trie import Route, RouteTrie, check_private
from statemachines.drivers.topic import LEVELS_MAX, TOPIC_MAX, check_filter, check_topic
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.fan_out import choose_routes


def matches(topic_filter, topic):
    """MQTT 5, section 4.7, said once more."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


LEVEL = st.sampled_from(["", "a", "b", "$x", "+"])
FILTER = st.builds(
    lambda levels, more: "/".join(levels + more), st.lists(LEVEL, max_size=3), st.sampled_from([[], ["#"]])
)
TOPIC = st.lists(st.sampled_from(["", "a", "b", "$x"]), min_size=1, max_size=4).map("/".join)
CHANGE = st.tuples(st.booleans(), st.sampled_from(["s1", "s2"]), FILTER, st.integers(0, 2))


@given(changes=st.lists(CHANGE, max_size=25), topics=st.lists(TOPIC, min_size=1, max_size=5))
def test_the_trie_finds_what_the_rules_say(changes, topics):
    trie, known = RouteTrie(), {}
    for is_there, session, topic_filter, qos in changes:
        if is_there:
            trie.put(session, topic_filter, qos)
            known[session, topic_filter] = qos
        else:
            trie.remove(session, topic_filter)
            known.pop((session, topic_filter), None)
    for topic in topics:
        wanted = sorted(Route(*key, qos) for key, qos in known.items() if matches(key[1], topic))
        assert trie.match(topic) == wanted
    for key in known:
        trie.remove(*key)
    assert not trie._root.below
    assert not trie._plain


def test_what_belongs_to_the_server_is_not_met_by_a_first_wildcard():
    trie = RouteTrie()
    for topic_filter in ("#", "+/load", "$SYS/#", "$SYS/+"):
        trie.put("s", topic_filter, 0)
    assert [one.filter for one in trie.match("$SYS/load")] == ["$SYS/#", "$SYS/+"]
    assert [one.filter for one in trie.match("x/load")] == ["#", "+/load"]


@pytest.mark.parametrize("wrong", ["", "a#", "a+/b", "#/a", "a/#/b", "\0", "\ud800", "/" * 200, "x" * 70_000, None, 7])
def test_what_is_no_filter_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=r"^filter"):
        check_filter(wrong)


@pytest.mark.parametrize("shared", ["$share/g/a", "$shared/g/#", "$queue/q/a"])
def test_PS_220_a_filter_of_a_group_is_refused_and_can_be_unsubscribed(shared):
    with pytest.raises(ConfigurationError, match=r"^filter.*is of a group that shares.*--group-leader"):
        check_private(shared)
    assert check_filter(shared) == shared
    with pytest.raises(ConfigurationError, match=r"^topic.*begins as filters of groups do"):
        check_topic(shared.replace("#", "x"))
    assert [check_private(one) for one in ("$SYS/#", "share/g", "$sharedx/a")] == ["$SYS/#", "share/g", "$sharedx/a"]


@pytest.mark.parametrize("check", [check_topic, check_filter])
@pytest.mark.parametrize("longest", ["x" * TOPIC_MAX, "/" * (LEVELS_MAX - 1)], ids=["bytes", "levels"])
def test_the_longest_and_the_deepest_are_taken_and_nothing_beyond(check, longest):
    assert check(longest) == longest
    with pytest.raises(ConfigurationError, match="must have at most"):
        check(longest + longest[0])


@given(changes=st.lists(CHANGE, max_size=25), topics=st.lists(TOPIC, min_size=1, max_size=3))
def test_PS_501_the_routes_of_a_topic_are_found_once_until_a_subscription_changes(changes, topics):
    trie = RouteTrie()
    for is_there, session, topic_filter, qos in changes:
        if is_there:
            trie.put(session, topic_filter, qos, is_single=session == "s1")
        else:
            trie.remove(session, topic_filter)
        for topic in topics:
            found = trie.find_routes(topic)
            assert found == choose_routes(trie.match(topic))
            assert trie.find_routes(topic) is found


def test_PS_601_a_long_topic_is_matched_each_time_and_not_remembered():
    trie = RouteTrie()
    trie.put("s", "#", 1)
    for size in (route_trie.TOPIC_MAX, route_trie.TOPIC_MAX + 1):
        assert [trie.find_routes("t" * size)[0].session for _ in range(2)] == ["s", "s"]
    assert [len(one) for one in trie._remembered] == [route_trie.TOPIC_MAX]


def test_PS_501_no_more_routes_are_remembered_than_may_be(monkeypatch):
    monkeypatch.setattr(route_trie, "REMEMBERED_MAX", 10)
    trie = RouteTrie()
    trie.put("s", "#", 1)
    for number in range(100):
        assert trie.find_routes(f"t/{number}") == (Route("s", "#", 1),)
        assert len(trie._remembered) <= 5

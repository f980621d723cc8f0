"""Judges of runs of MQTT: they know what PUBACKs said and what subscribers printed, and share nothing with what they
judge; the logs of the nodes are judged besides."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import NamedTuple

from statemachines_reports.pipeline import analyze

SPREAD = 1_000_000
"""A payload is the number of its topic times this, and its number within the topic."""


class MemberReceipt(NamedTuple):
    """What a member printed: its number among members, the payload, the packet id, and whether it was marked."""

    member: int
    number: int
    packet_id: int
    dup: bool


def judge(wanted, receipts, presents, sent):
    """What is wrong with what the clients saw.  The publisher was answered for all that are `wanted`.  `sent` is what
    it sent over each of its connections: what it repeated may come twice, and what it sent in another order over one
    connection may come so."""
    receipts = [one for one in receipts if one.number in wanted]
    numbers = {one.number for one in receipts}
    wrong = [f"missing: {sorted(wanted - numbers)[:10]}"] if wanted - numbers else []
    firsts = list(dict.fromkeys(one.number for one in receipts))
    moved = [(before, after) for before, after in pairwise(firsts) if after < before]
    wrong += [f"{after} came behind {before}" for before, after in moved if not was_sent_so(before, after, sent)]
    again = set(list_repeats(receipts)) - find_repeated(sent)
    if again:
        wrong.append(f"twice without a mark: {sorted(again)[:10]}")
    if not all(one is None or one for one in presents[1:]):
        wrong.append(f"session present: {presents}")
    return wrong


def was_sent_so(before, after, sent):
    """Whether the publisher sent the later number first, over one connection."""
    both = (one for one in sent if before in one and after in one)
    return any(one.index(before) < one.index(after) for one in both)


def find_repeated(sent):
    """Numbers that the publisher sent more than once."""
    counts = Counter(number for one in sent for number in one)
    return {number for number, count in counts.items() if count > 1}


def judge_trace(folder):
    """What is wrong by the logs of the nodes; they must tell of connections, each step of which is judged."""
    analysis = analyze(folder / "trace", folder / "report", spark=False)
    rows = [one for one in analysis.tables["coverage"] if one["machine"] == "mqtt_connections/mqtt_connection"]
    if len(rows) < 5 or analysis.absent:
        return [f"trace: {len(rows)} rows of connections, absent: {analysis.absent}"]
    return [f"trace: {check.name}: {check.wrong} wrong" for check in analysis.checks if not check.held]


def list_repeats(receipts):
    """Numbers that came again without a mark: the publisher has sent them again."""
    seen, repeats = set(), []
    for one in receipts:
        if one.number in seen and not one.dup:
            repeats.append(one.number)
        seen.add(one.number)
    return repeats


def judge_shared(wanted, receipts, uncertain):
    """What is wrong with what members printed, `receipts` in the order of printing.  The publisher was answered for all
    that are `wanted`; those that are `uncertain` it sent more than once."""
    members, firsts, wrong = defaultdict(set), {}, []
    for one in receipts:
        if one.number in members and one.member in members[one.number] and not one.dup | (one.number in uncertain):
            wrong.append(f"twice without a mark: {one}")
        members[one.number].add(one.member)
        firsts.setdefault(one.number, one)
    missing = sorted(wanted - set(members))
    wrong += [f"missing: {missing[:10]}"] if missing else []
    shared = sorted(one for one, its in members.items() if len(its) > 1 and one not in uncertain)
    wrong += [f"given to several: {shared[:10]}"] if shared else []
    orders = defaultdict(list)
    for one in firsts.values():
        orders[one.member, one.number // SPREAD].append(one.number)
    for its in orders.values():
        wrong += [f"{after} came behind {before}" for before, after in pairwise(its) if after < before]
    return wrong


def list_new(receipts, first):
    """The numbers behind `first` that were given, but for those that are marked as repetitions of what it had."""
    had, numbers = set(), []
    for one in receipts:
        if one.number > first and not (one.dup and (one.number, one.packet_id) in had):
            numbers.append(one.number - first)
        had.add((one.number, one.packet_id))
    return numbers


def judge_once(count, numbers):
    """What is wrong with what a subscriber was given: each of `count` once."""
    counts = Counter(numbers)
    missing = [number for number in range(1, count + 1) if not counts[number]]
    wrong = [f"missing: {missing[:10]}"] if missing else []
    twice = sorted(number for number, times in counts.items() if times > 1)
    if twice:
        wrong.append(f"twice: {twice[:10]}")
    return wrong


def count_moved(numbers):
    """How many came behind a later one of their topic."""
    topics = ([number for number in numbers if number % 3 == topic] for topic in range(3))
    return sum(after < before for of_topic in topics for before, after in pairwise(of_topic))

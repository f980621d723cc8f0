"""Claims: what a leader knows of the group store, whatever became of its commits (S3)."""

from __future__ import annotations

from collections.abc import Iterable

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.group_store import SERVICE, Claim, StoredRecord
from statemachines.shared_subscriptions.leader_record import CLAIMED, LeaderRecord
from statemachines.shared_subscriptions.names import CLAIM, ROOT, record_name
from statemachines_spec.explorer.party import is_due
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.shared_subscriptions import leader_host
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.stores import StoreLocal

VALUES, TIMES = 8, 16
"""Epochs, roots and stamps are told apart modulo these."""

UNKNOWN, ABSENT, SIZE = 0, 1, 2 + VALUES * TIMES


def knows_store(hosts: tuple[str, ...]) -> tuple[Property, ...]:
    """A leader with no commit under way knows claim and root exactly."""
    return tuple(
        Always(
            f"S3 {name} {host}",
            f"a leader with no commit under way knows the {name} that is stored, and when it was written",
            (View(host, SIZE, known), View(SERVICE, SIZE, stored)),
            lambda ours, theirs: ours in (UNKNOWN, theirs),
        )
        for host in hosts
        for name, known, stored in (("claim", claim_known, claim_stored), ("root", root_known, root_stored))
    )


def doubts(hosts: Iterable[str]) -> tuple[Property, ...]:
    """Against a store that never fails: some leader does not know what became of its commit."""
    views = tuple(View(host, 2, _doubts) for host in hosts)
    return (Sometimes("in doubt", "a leader is about to find out whether a commit happened", views, _any),)


def goes_on(hosts: Iterable[str]) -> Sometimes:
    """Against a model of one leader only: another one serves after the first."""
    views = tuple(View(host, 2, _is_later) for host in hosts)
    return Sometimes("another leader", "a leader of a later epoch has given a stream to a member", views, _any)


def keeps_claim(hosts: Iterable[str]) -> Always:
    """L6, where nothing goes wrong: who leads does not lose its claim."""
    views = tuple(View(host, 2, _has_ended) for host in hosts)
    return Always("L6 kept", "no leader ends, as nothing goes wrong", views, lambda *ended: not any(ended))


def renews(hosts: Iterable[str]) -> Sometimes:
    """Against a model in which time stands still: a leader has renewed its claim twice."""
    views = tuple(View(host, 2, _has_renewed) for host in hosts)
    return Sometimes("L6 renewed", "a leader has renewed its claim twice", views, _any)


def _has_ended(local: LeaderHostLocal) -> int:
    return int(local.number > 0 and local.party is None)


def _has_renewed(local: LeaderHostLocal) -> int:
    root = None if local.party is None else local.party.record.root
    return int(root is not None and isinstance(root.value, int) and root.value >= 2)


def _is_later(local: LeaderHostLocal) -> int:
    return int(local.party is not None and local.party.record.epoch > 1 and bool(local.party.record.assignments))


def _any(*each: int) -> bool:
    return any(each)


def _doubts(local: LeaderHostLocal) -> int:
    return int(local.party is not None and any(name == "recheck" for name, _ in local.party.timers))


def _sure(local: LeaderHostLocal) -> LeaderRecord | None:
    """The record of a leader that believes in its claim, and has no commit under way."""
    if local.party is None or local.mode is leader_host.LATE or is_due(local.party, "claim_end"):
        return None
    record: LeaderRecord = local.party.record
    return record if record.status in CLAIMED and record.trial is None else None


def claim_known(local: LeaderHostLocal) -> int:
    """The claim as the leader has it."""
    record = _sure(local)
    return UNKNOWN if record is None else _code(record.claim)


def root_known(local: LeaderHostLocal) -> int:
    """The root as the leader has it."""
    record = _sure(local)
    return UNKNOWN if record is None or not record.root_known else _code(record.root)


def claim_stored(local: StoreLocal) -> int:
    """The claim as it is stored."""
    return _stored(local, CLAIM)


def root_stored(local: StoreLocal) -> int:
    """The root as it is stored."""
    return _stored(local, ROOT)


def _stored(local: StoreLocal, name: str) -> int:
    return _code(next((stored for key, stored in in_order(local.state) if record_name(key).name == name), None))


def _code(stored: StoredRecord | None) -> int:
    if stored is None:
        return ABSENT
    value = stored.value.epoch if isinstance(stored.value, Claim) else stored.value
    assert isinstance(value, int)
    return 2 + value % VALUES * TIMES + stored.stamp % TIMES

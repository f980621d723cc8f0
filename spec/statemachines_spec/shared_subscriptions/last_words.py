"""Last words: what a leader says and keeps as it, or a member, goes (S5, S7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.group_store import SERVICE, Claim, FailingMessage
from statemachines.shared_subscriptions.leader_record import SERVING, LeaderRecord
from statemachines_spec.explorer.property import Always, Stepwise, View
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.properties import may_deliver
from statemachines_spec.shared_subscriptions.stores import StoreLocal


def clean(consumers: Iterable[str], stream: str) -> Always:
    """S5: a claim that was given up as clean says that nobody holds a lease."""
    views = tuple(View(name, 2, may_deliver((stream,))) for name in consumers)
    text = "nobody may deliver under a claim that was given up as clean"
    return Always(
        "S5 clean", text, (View(SERVICE, 2, _is_clean), *views), lambda clean, *delivers: not (clean and any(delivers))
    )


def _is_clean(local: StoreLocal) -> int:
    claims = (stored.value for _, stored in in_order(local.state) if isinstance(stored.value, Claim))
    return int(any(claim.leader == "" and claim.clean for claim in claims))


def stages(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S7: progress that a serving leader comes to go by is staged in the same step, whoever said it: the next leader
    would grant from less."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or old.id != new.id:
        return True
    for stream, known in in_order(new.streams):
        earlier, staged = old.streams.get(stream), new.staged.get(stream) or 0
        staged = staged.progress if isinstance(staged, FailingMessage) else staged
        if earlier is not None and earlier.progress < known.progress > staged:
            return False
    return True


STAGES = Stepwise("S7 staged", "progress that a leader goes by is about to be durable", stages)


def _serving(local: Any) -> LeaderRecord | None:
    if not isinstance(local, LeaderHostLocal) or local.party is None:
        return None
    record: LeaderRecord = local.party.record
    return record if record.status in SERVING else None

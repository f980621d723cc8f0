"""Process variants: the declared processes of shared subscriptions without a party that the environment stands for."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Begin, Effects, Fsm, Ignore, Process, Row
from statemachines.shared_subscriptions.agent_process import WITNESSES, doubt, is_for_living, is_from_named
from statemachines.shared_subscriptions.agent_record import AgentRecord
from statemachines.shared_subscriptions.borrower import Destroyed
from statemachines_spec.explorer.process_steps import copy_process


def leave_out_witness(process: Process[Any]) -> Process[Any]:
    """The process without its witness: the claim always names who speaks."""
    old = process.fsm
    rows = tuple(change_row(row) for row in old.declared if not (isinstance(row, Row) and row.do is doubt))
    states, kinds = type(old.initial), tuple(process.kinds.values())
    fsm = Fsm(old.name, protocol=old.protocol, record=old.record_type, states=states, initial=old.initial, rows=rows)
    return copy_process(process, fsm, kinds)


def change_row(row: Row | Ignore) -> Row | Ignore:
    """The row as it is without a witness."""
    if not isinstance(row, Row):
        return row
    when: Any = is_for_living if row.when is is_from_named else row.when
    return Row(row.on, row.source, row.to, change_action(row.do), when, row.clause)


def change_action(do: Any) -> Any:
    """The action, with the epoch that the last borrower had seen for that of the claim, and no witness."""
    if do is None:
        return None

    def act(record: AgentRecord, event: Any, now_ns: int) -> tuple[AgentRecord, Effects]:
        if isinstance(event, Destroyed) and event.recreate:
            place = record.subscriptions[record.parties[event.borrower]].place
            claim = record.claims[place]
            claim = replace(claim, epoch=max(claim.epoch, event.epoch))
            record = replace(record, claims=record.claims.set(place, claim))
        record, effects = do(record, event, now_ns)
        return record, tuple(one for one in effects if not (isinstance(one, Begin) and one.kind == WITNESSES.name))

    act.__name__ = do.__name__
    return act

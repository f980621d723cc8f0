"""Damage matrix: every kind of damage, done to a trace, and which checks see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from statemachines_reports.damage import ask_damage, cell_damage, data_damage, message_damage, step_damage, tell_damage
from statemachines_reports.damage.damage_kind import DamageKind, DamageTally
from statemachines_reports.damage.damage_list import WITHOUT_DATA
from statemachines_reports.damage.damage_trial import DamageTrial

ALL_KINDS: Final = (
    *step_damage.KINDS, *message_damage.KINDS, *tell_damage.KINDS, *cell_damage.KINDS, *ask_damage.KINDS,
    *data_damage.KINDS,
)  # fmt: skip
BY_NAME: Final = {kind.name: kind for kind in ALL_KINDS}


def count_cells(found: Iterable[DamageTally]) -> tuple[int, int]:
    """How many kinds were tried, and how many of them were seen in most tries."""
    tallies = list(found)
    return len(tallies), sum(2 * one.seen > one.tried for one in tallies)


def list_left_out(trial: DamageTrial) -> dict[str, str]:
    """Kind -> why it is not tried in this trace."""
    own = [report.roles.left_out for report in trial.judges.reports.values()]
    return {**({} if trial.has_data else WITHOUT_DATA), **{kind: why for one in own for kind, why in one.items()}}


def try_all(trial: DamageTrial, seeds: Iterable[int], kinds: Iterable[DamageKind] = ALL_KINDS) -> Iterator[DamageTally]:
    """Every kind that is not left out, and that can hit something in the trace."""
    left_out, numbers = list_left_out(trial), list(seeds)
    for kind in kinds:
        if kind.name not in left_out:
            found = trial.try_kind(kind, numbers)
            if found is not None:
                yield found

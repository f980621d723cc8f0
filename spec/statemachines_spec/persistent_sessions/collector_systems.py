"""Systems with a collector: it deletes beside writers, owners and late reads, and may stop after any deletion."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.persistent_sessions.collector import (
    COLLECTOR,
    CollectorRecord,
    DeletePage,
    Graces,
    ReadMessages,
    RowKey,
    Tag,
)
from statemachines.persistent_sessions.properties.session_owners import judge_losses
from statemachines.persistent_sessions.request import CommitState, Fence, PutMarker, PutRows, ReadPending, ReadRow
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines_spec.explorer.actor import Crash
from statemachines_spec.explorer.fsm_actor import FsmActor, FsmLocal
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.collected_database import CollectedDatabase
from statemachines_spec.persistent_sessions.systems import SessionSetting, build, database_arguments

COLLECTOR_NAME = "collector"


class CollectorSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds such a system: `setting` of all else; `lives` of the collector, each of which begins somewhere else;
    `page`: so much is read at once; `abandons`, `in_grace`: see `Collected`."""

    setting: SessionSetting
    lives: int = 1
    page: int = 9
    abandons: bool = False
    in_grace: bool = True


SYSTEMS: dict[str, tuple[str, CollectorSetting]] = {
    "collected": (
        "a collector deletes while a writer goes on and a session resumes; the replica is behind by one entry",
        CollectorSetting(
            setting=SessionSetting(messages=(2,), lag=1, markers=1, hides=True, slow=(CommitState, DeletePage))
        ),
    ),
    "collector-stops": (
        "the collector dies after any deletion, and begins anew elsewhere; the owner dies, too",
        CollectorSetting(
            setting=SessionSetting(
                messages=(1,), lag=0, owner_lives=2, markers=1, hides=True, slow=(CommitState, DeletePage)
            ),
            lives=2,
            page=1,
        ),
    ),
    "collected-late": (
        "what a resume has read comes after it was deleted",
        CollectorSetting(
            setting=SessionSetting(messages=(2,), lag=0, markers=1, hides=True, slow=(ReadPending, DeletePage))
        ),
    ),
    "collected-unclear": (
        "a row whose fate is not known is taken and deleted before its writer looks for it",
        CollectorSetting(
            setting=SessionSetting(
                messages=(2,), lag=0, unclear=1, markers=1, hides=True, slow=(PutRows, PutMarker, ReadRow, DeletePage)
            )
        ),
    ),
    "collected-fenced": (
        "a writer is fenced while its rows are deleted",
        CollectorSetting(
            setting=SessionSetting(messages=(1,), lag=0, silences=1, markers=2, hides=True, slow=(Fence, DeletePage))
        ),
    ),
    "abandoned": (
        "a session is abandoned while its writer stores; what it has stored late vanishes, too",
        CollectorSetting(
            setting=SessionSetting(messages=(1,), lag=1, markers=1, hides=True, slow=(PutRows, DeletePage)),
            abandons=True,
        ),
    ),
    "collected-aging": (
        "messages expire while they wait, or are in flight, and a collector deletes them; another waits behind",
        CollectorSetting(
            setting=SessionSetting(
                messages=(2,),
                untils=(1, 0),
                lag=0,
                window=1,
                later=True,
                markers=1,
                hides=True,
                slow=(CommitState, DeletePage),
            )
        ),
    ),
    "collected-away": (
        "a message expires, and is deleted, before its client leaves or while it is away; what was read comes late",
        CollectorSetting(
            setting=SessionSetting(
                messages=(1,),
                untils=(1,),
                lag=0,
                leaves=1,
                markers=1,
                hides=True,
                slow=(ReadPending, ReadMessages, DeletePage),
            )
        ),
    ),
}
"""Name -> (about, bounds)."""


def collecting(name: str, about: str, one: CollectorSetting) -> System:
    """The system with these bounds."""
    setting = one.setting
    given = database_arguments(setting)
    database = CollectedDatabase(
        setting.writers,
        setting.owners,
        total=sum(setting.messages),
        abandons=one.abandons,
        in_grace=one.in_grace,
        **given,
    )
    made = build(name, about, setting, database=database)
    kept = "what the collector deletes nobody needs any more"
    swept = "what nobody needs any more vanishes"
    kinds = [each for each in made.properties if not (one.abandons and isinstance(each, Sometimes))]
    obligations = () if one.abandons or setting.owner_lives > 1 else made.obligations
    return replace(
        made,
        actors=(*made.actors, collector(one)),
        properties=(
            *(each for each in kinds if not (one.abandons and each.name == "COMPLETE")),
            *(expiring(database, setting) if setting.untils else ()),
            Always("KEPT", f"always: {kept}", (database.is_wrong(),), lambda wrong: not wrong),
            Sometimes("something is deleted", "", (database.has_deleted(1),), bool),
        ),
        budgets=(*made.budgets, at_most("collectors that stop", one.lives - 1, Crash, actors=(COLLECTOR_NAME,))),
        obligations=(*obligations, Eventually("VANISH", swept, (database.has_garbage(),), bool)),
    )


def expiring(database: CollectedDatabase, setting: SessionSetting) -> tuple[Property, ...]:
    """Where messages expire, and none is ever older than the retention."""
    text = "always: what an owner passes over counts as expired, and nothing as lost"
    return (
        *(Always("COUNTED", text, (has_lost(one),), lambda lost: not lost) for one in setting.owners),
        Sometimes("what is over is deleted", "", (database.has_dropped(),), bool),
    )


def has_lost(owner: str) -> View:
    """This owner has counted a message as lost."""

    def read(local: FsmLocal) -> int:
        return int(local.party is not None and bool(judge_losses(owner, local.party.record.delivery)))

    return View(owner, 2, read)


def collector(one: CollectorSetting) -> FsmActor:
    """The collector; its second life begins behind the first row."""
    graces = Graces(retention_ms=3_600_000, page=one.page)
    starts = {1: None, 2: RowKey(SESSION, "writer-1", 1, 1, Tag.UNDELIVERED)}
    return FsmActor(
        COLLECTOR_NAME,
        COLLECTOR,
        lambda life: CollectorRecord(graces, after=starts[life]),
        lives=one.lives,
        faults=(Crash,) if one.lives > 1 else (),
        canonical=lambda record: replace(record, clients=0, rows=0, messages=0),
    )


ASSUMED = {
    "marker-outlived": (
        "a resume takes longer than the grace of markers: its marker is gone",
        "collector-stops",
        "KEPT",
    ),
    "row-after-grace": (
        "a writer stores for an abandoned session when nothing says any more that it is: the row stays for ever",
        "abandoned",
        "VANISH",
    ),
}
"""Without the graces: what goes wrong, in which of these systems, and what breaks."""


def without_graces(name: str) -> System:
    """The system in which a grace ends too early, and the one thing that is to break."""
    about, where, breaks = ASSUMED[name]
    made = collecting(name, about, replace(SYSTEMS[where][1], in_grace=False))
    return replace(
        made,
        properties=tuple(one for one in made.properties if one.name == breaks),
        obligations=tuple(one for one in made.obligations if one.name == breaks),
    )

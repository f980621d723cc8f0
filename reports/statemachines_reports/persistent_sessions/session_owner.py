"""Session owner: one owner of a session, from the first look at the database until its log ends, and its flows."""

from __future__ import annotations

from statemachines_reports.persistent_sessions.findings import CUT, GAP, Findings
from statemachines_reports.persistent_sessions.written_rows import Position

FROM_DATABASE = ("polled", "handed")
KEEPING = ("behind", "syncing", "finalizing")
STARVED = ("behind", "draining")


class OwnedFlow:
    """One writer of an owner: `k` of the marker that is shown, or of a cut without one, under `epoch` (0: none), so
    many messages `kept` behind it; `taken`: the last position that this owner took (None: nothing yet); `event`: what
    the flow has heard last; `status`: its state; `blocked`: the last position that waited for other writers, and
    `released`: the last of those that wait no more."""

    __slots__ = (
        "_findings",
        "_name",
        "blocked",
        "epoch",
        "event",
        "expects",
        "k",
        "kept",
        "released",
        "status",
        "taken",
    )

    def __init__(self, name: str, findings: Findings) -> None:
        self._name = name
        self._findings = findings
        self.taken: Position | None = None
        self.blocked: Position = (0, 0)
        self.released: Position = (0, 0)
        self.k = self.epoch = self.kept = 0
        self.event = self.status = ""
        self.expects: tuple[int, int] | None = None
        """What was kept, and is to be taken at once."""

    def step(self, row: int, event: str, source: str, dest: str, epoch: int, first: int) -> None:
        """The flow has heard something; `epoch` and `first`: what it says, a number or the marker's."""
        self.check_kept(row)
        self.event, self.status = event, dest
        if event == "starve" or (event == "live_marker" and source == "waiting" and dest == "syncing"):
            self.k, self.epoch, self.kept = first, epoch, 0
        elif event == "live" and source in KEEPING and first == self.k + self.kept:
            self.kept += 1
        elif event == "settled" and dest == "done":
            self._finish(row)
        if dest in ("waiting", "fencing"):
            self.k = self.kept = 0

    def _finish(self, row: int) -> None:
        """What is below the marker is taken, all of it; what was kept follows."""
        number = 0 if self.taken is None or self.taken[0] != self.epoch else self.taken[1]
        below = self.taken is None or number == self.k - 1
        self._look(CUT, below, row, f"takes what was kept from {self.k} on, and has taken up to {number}")
        self.expects = (self.k, self.k + self.kept - 1) if self.kept else None

    def take(self, row: int, epoch: int, first: int, last: int) -> None:
        """Rows are taken: those of a flow follow each other."""
        before = self.taken
        if before is not None:
            follows = first == before[1] + 1 if epoch == before[0] else epoch > before[0] and first == 1
            self._look(GAP, follows, row, f"takes {epoch}/{first} behind {before[0]}/{before[1]}")
        if self.event in FROM_DATABASE and self.k:
            self._look(CUT, last < self.k, row, f"takes {last} from the database, and the marker says {self.k}")
        elif self.expects is not None:
            kept, self.expects = self.expects, None
            self._look(CUT, (first, last) == kept, row, f"takes {first} to {last}, and has kept {kept[0]} to {kept[1]}")
        self.taken = epoch, last

    def check_kept(self, row: int) -> None:
        """Nothing that was kept is forgotten."""
        if self.expects is not None:
            kept, self.expects = self.expects, None
            self._look(CUT, False, row, f"has kept {kept[0]} to {kept[1]}, and does not take it")

    def is_from_database(self) -> bool:
        """Whether what is taken now was read, and did not come live."""
        return self.event not in ("live", "settled")

    def _look(self, check: str, holds: bool, row: int, detail: str) -> None:
        self._findings.look(check, holds, row, f"{self._name} {detail}")


class OwnerHistory:
    """`party` owns a session under `token`; rows of the segment: `begun` when its client connected, `loaded` when it
    asked for the state.  `pending` and `buffered`: how many rows it took from the database, and from behind markers,
    on its way to normal operation; `stale`: it asks for a commit, and somebody has loaded the state after it."""

    def __init__(self, party: str, node: str, row: int) -> None:
        self.party = party
        self.node = node
        self.begun = row
        self.loaded = row
        self.token = 0
        self.flows: dict[str, OwnedFlow] = {}
        self.pending = self.buffered = 0
        self.stale = self.is_yielding = False
        self.committed_ns = 0
        """When it has committed last, by the clock of the database."""

    def is_starved(self, writer: str) -> bool:
        """What this writer has stored is read when the client has room for it."""
        found = self.flows.get(writer)
        return found is not None and found.status in STARVED

    def flow(self, writer: str, findings: Findings) -> OwnedFlow:
        """That of a writer."""
        found = self.flows.get(writer)
        if found is None:
            found = self.flows[writer] = OwnedFlow(f"{self.party}, writer {writer},", findings)
        return found

"""Session: the history of one session in a run: who wrote for it, who owned it, what its client was sent."""

from __future__ import annotations

from statemachines.kernel import node_of
from statemachines_reports.persistent_sessions.findings import AGED, OWNER, TWICE, Findings
from statemachines_reports.persistent_sessions.session_owner import OwnerHistory
from statemachines_reports.persistent_sessions.written_rows import Position, PutRequest, WrittenRows

Kind = tuple[str, bool]
"""A message, and whether it comes under a packet (QoS 1 and 2)."""


class SessionHistory:
    """`name`: its id; `writers` by name; `resuming`: owners that are on their way to normal operation; `died`: the row
    in which the node of its owner died (-1: it lives)."""

    def __init__(self, name: str, findings: Findings) -> None:
        self.name = name
        self.writers: dict[str, WrittenRows] = {}
        self.resuming: set[str] = set()
        self.normal: OwnerHistory | None = None
        self.died = -1
        self.loaded_ns = 0
        """When its state was loaded last, by the clock of the database."""
        self._committing: set[str] = set()
        """Owners that have asked for a commit, and have not heard of it."""
        self._findings = findings
        self._loaded: list[tuple[int, int]] = [(-1, 0)]
        """The rows in which it was loaded under a token that was higher than all before, and the tokens."""
        self._begun = 0
        """The highest token of whom an owner of before has yielded to, as that one was told."""
        self._puts: dict[Kind, list[tuple[WrittenRows, PutRequest]]] = {}
        self._packets: dict[int, str] = {}
        self._senders: dict[tuple[str, int], int] = {}
        """(message, packet) -> the highest token under which an owner has sent it so."""

    def writer(self, name: str) -> WrittenRows:
        """What a writer has stored for it."""
        found = self.writers.get(name)
        if found is None:
            found = self.writers[name] = WrittenRows(name, self._findings)
        return found

    def put(self, written: WrittenRows, put: PutRequest) -> None:
        """A row is asked for, or asked for again."""
        if written.puts.get(put.at) is put:
            self._puts.setdefault((put.message, put.qos > 0), []).append((written, put))

    def refuse(self, written: WrittenRows, put: PutRequest) -> None:
        """It was not stored."""
        known = written.puts.get(put.at)
        written.refuse(put)
        if known is not None:
            self._puts[known.message, known.qos > 0].remove((written, known))

    # -- owners -----------------------------------------------------------------------------------------------------

    def load(self, row: int, owner: OwnerHistory, time_ns: int) -> None:
        """An owner has its state, as of this time of the database, which refuses those before it from now on."""
        self.loaded_ns = max(self.loaded_ns, time_ns)
        if self._committing:
            self._committing.clear()
            for written in self.writers.values():
                written.leave_out(self.loaded_ns)
        known = max(token for at, token in self._loaded if at < owner.loaded)
        self._look(owner.token >= known, row, f"{owner.party} loads it under {owner.token}, and {known} was there")
        if owner.token > self._loaded[-1][1]:
            self._loaded.append((row, owner.token))
        self.resuming.add(owner.party)

    def ask_commit(self, row: int, owner: OwnerHistory, is_answered: bool) -> None:
        """An owner asks for a commit, and hears of it."""
        self._look(not owner.is_yielding, row, f"{owner.party} asks for a commit, and has yielded")
        if is_answered:
            owner.stale = owner.token < self._loaded[-1][1]

    def ask_state_commit(self, row: int, owner: OwnerHistory, token: int) -> None:
        """An owner asks under the token under which it has loaded the state."""
        self._committing.add(owner.party)
        what = f"{owner.party} asks for a commit under token {token}, and has loaded the state under {owner.token}"
        self._look(token == owner.token, row, what)

    def acknowledge(self, row: int, owner: OwnerHistory, packet: int) -> None:
        """The client says that it has a packet, which some owner has sent it."""
        what = f"{owner.party} is told that packet {packet} came, which nobody has sent"
        self._look(packet in self._packets, row, what)

    def commit(self, row: int, owner: OwnerHistory, time_ns: int) -> None:
        """It is told that it has committed, at this time of the database."""
        owner.committed_ns = time_ns
        self._committing.discard(owner.party)
        token = self._loaded[-1][1]
        what = f"{owner.party} commits under token {owner.token}, and it had been loaded under {token}"
        self._look(not owner.stale, row, what)

    def begin_takeover(self, owner: OwnerHistory) -> None:
        """The owner of before has said that it yields to this one."""
        self._begun = max(self._begun, owner.token)

    def resume(self, row: int, owner: OwnerHistory) -> None:
        """An owner is in normal operation."""
        for name, written in self.writers.items():
            if not owner.is_starved(name):
                written.check_resumed(row, owner.party, owner.loaded)
        self.resuming.discard(owner.party)
        self.normal = owner

    def yield_(self, owner: OwnerHistory) -> None:
        """An owner falls silent."""
        owner.is_yielding = True
        self.stop(owner)

    def stop(self, owner: OwnerHistory) -> None:
        """An owner ends."""
        self.resuming.discard(owner.party)
        if self.normal is owner:
            self.normal = None

    def die(self, node: str) -> bool:
        """A node has died; whether the session was in normal operation there."""
        self.resuming = {party for party in self.resuming if node_of(party) != node}
        if self.normal is None or self.normal.node != node:
            return False
        self.normal = None
        return True

    # -- the client -------------------------------------------------------------------------------------------------

    def send(self, row: int, owner: OwnerHistory, message: str, packet: int, again: bool) -> bool:
        """An owner sends a message to the client; whether it is sent for the first time.

        An owner that stood still between its commit and its first sending sends when it continues. A later owner, which
        loaded that commit, may have sent the message before, marked and under the same packet. The client has left the
        earlier owner by then (PS-D85).
        """
        self._look(not owner.is_yielding, row, f"{owner.party} sends {message}, and has yielded")
        what = f"{owner.party} sends {message} under token {owner.token}, and {self._begun} has taken over"
        self._look(owner.token >= self._begun, row, what)
        if packet and owner.token < self._senders.get((message, packet), 0):
            return False
        if packet:
            self._senders[message, packet] = owner.token
        if again and self._packets.get(packet) == message:
            return False
        self._packets[packet] = message
        self._send_first(row, owner, message, packet > 0)
        return True

    def _send_first(self, row: int, owner: OwnerHistory, message: str, has_packet: bool) -> None:
        kind = message, has_packet
        puts = self._puts.get(kind)
        if puts is None:
            return  # nobody's log says where it comes from
        found = self._next_put(kind)
        what = f"{message} is sent by {owner.party} as new, and was sent before"
        self._findings.look(TWICE, found is not None, row, what)
        if found is None:
            return
        written, put = found
        late = f"{message} is sent by {owner.party} as new at {owner.committed_ns}, and was over at {put.until_ns}"
        if put.until_ns:
            self._findings.look(AGED, not put.is_over(owner.committed_ns), row, late)
        committed = put.at in written.marked or written.taken.get(put.at, owner.party) != owner.party
        self._look(committed, row, f"{owner.party} sends {message}, and has not committed that it has taken it")
        written.send(row, owner.party, put)
        for other in self.writers.values() if put.since_ns else ():
            if other is not written:
                other.check_older(row, owner.party, put.since_ns, message)

    def pass_over(self, row: int, owner: OwnerHistory, message: str, has_packet: bool, time_ns: int) -> None:
        """An owner says that a message was over before it was sent."""
        kind = message, has_packet
        puts = self._puts.get(kind)
        if puts is None:
            return  # nobody's log says where it comes from
        found = self._next_put(kind)
        what = f"{message} is passed over by {owner.party}, and was sent before"
        self._findings.look(AGED, found is not None, row, what)
        if found is not None:
            written, put = found
            written.pass_over(row, owner.party, put, time_ns)

    def _next_put(self, kind: Kind) -> tuple[WrittenRows, PutRequest] | None:
        """The row that is sent, of those of a message: the first that an owner has taken with its message.  Of others
        the message may have been deleted, because it was too old."""
        left = [one for one in self._puts[kind] if one[1].left]
        found = next((one for one in left if one[0].has_message(one[1].at)), left[0] if left else None)
        if found is not None:
            found[1].left -= 1
        return found

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The run is over."""
        for written in self.writers.values():
            written.end(self.loaded_ns)

    def strangers(self) -> list[tuple[WrittenRows, Position]]:
        """What owners took, and no log says who stored it."""
        return [(one, at) for one in self.writers.values() for at in sorted(one.strangers())]

    def _look(self, holds: bool, row: int, detail: str) -> None:
        self._findings.look(OWNER, holds, row, detail)

"""LossReport: what a receiver has counted, as rows and as the source's table."""

from __future__ import annotations

import msgspec

from statemachines.sequence_windows.losses import LossPeer, table

NOTE = (
    "Bytes are as the source reckons them (128 and the subject, whatever the number of publishers);"
    " real memory is several times that."
)


class LossReport(msgspec.Struct, frozen=True):
    """`rows`: one a peer, in the order of their ids.  `subjects` that are kept, and their `bytes` as the source reckons
    them; `malformed`: datagrams that were no messages; `evicted`: publishers that were forgotten because a subject, or
    our inbox, had too many; `failed`: calls of the application that raised; `other_layout`: datagrams of another
    version (-1 each: nobody counted)."""

    rows: tuple[LossPeer, ...]
    subjects: int = -1
    bytes: int = -1
    malformed: int = -1
    evicted: int = -1
    failed: int = -1
    other_layout: int = -1

    @property
    def lost_messages(self) -> int:
        """How many messages are known to be missing, or at least one for each loss that is unknown."""
        return sum(row.lost for row in self.rows)

    def text(self, offset_s: int = 0) -> str:
        """The table, times `offset_s` east of UTC; then what else was counted, if anybody did."""
        lines = [table(self.rows, offset_s)]
        unknown = sum(row.unknown for row in self.rows)
        if unknown:
            lines.append(f"{unknown} losses are of unknown size, and count as one message each")
        odd = {
            "refused": sum(row.refused for row in self.rows),
            "strange times or chains": sum(row.strange for row in self.rows),
            "malformed": max(0, self.malformed),
            "of another version's layout": max(0, self.other_layout),
            "publishers forgotten for others": max(0, self.evicted),
            "callbacks that raised": max(0, self.failed),
        }
        if any(odd.values()):
            lines.append(", ".join(f"{name}: {count}" for name, count in odd.items() if count))
        if self.subjects >= 0:
            lines.append(f"{self.subjects} subjects, {self.bytes} bytes. {NOTE}")
        return "\n".join(lines)

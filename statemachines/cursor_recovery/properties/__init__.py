"""What must hold of a queue (`spec/cursor_recovery/properties.md`): written once for all that judge it.

`DeliveredBlocks` is fed what applications are told, `ReservedBlocks` also the accesses to the heads, in the order in
which it happens.  `memory_rules` judge words of the memory at one instant.
"""

from __future__ import annotations

from statemachines.cursor_recovery.properties.delivered_blocks import ACK, INTEG, KEPT, ONCE, ORDER, READ
from statemachines.cursor_recovery.properties.memory_rules import BOUND, EXCL, LOST, SPACE

PROPERTIES: tuple[str, ...] = (INTEG, ONCE, ORDER, ACK, KEPT, LOST, SPACE, EXCL, BOUND, READ)
"""Those that the observers here judge."""

"""Identity: a new id is (host incarnation from configuration, running number in the record).

`server-2~5/3` is the third thing that incarnation 5 of node `server-2` made.  No clock and no chance take part,
so the same run gives the same ids; an incarnation number must never be used twice.  A real node adds bits of chance to
it (`server-2~5.00f3a1c29e8d4b67/3`), so that even a number that comes twice makes no two ids alike.
"""

from __future__ import annotations

import re

from statemachines.kernel.errors import ConfigurationError

_NODE = re.compile(r"[A-Za-z0-9_.\-]{1,64}\Z")


def incarnation(node: str, number: int, bits: int = 0) -> str:
    """The name of one life of `node`; `bits`: of chance, or from configuration (0: none)."""
    if not _NODE.match(node):
        raise ConfigurationError("node", node, "1 to 64 letters, digits, '_', '.' or '-'")
    return f"{node}~{make_life_id(number, bits)}"


def make_life_id(number: int, bits: int) -> str:
    """What one life of a node has, and no other."""
    return f"{number}.{bits:016x}" if bits else f"{number}"


def fresh(host: str, number: int) -> str:
    """The id of thing `number` of the host incarnation `host`."""
    return f"{host}/{number}"


def is_fresh(party: str) -> bool:
    """It is the id of a thing that some incarnation made, not the name of a node."""
    return "/" in party


def node_of(party: str) -> str:
    """The node that the party with this id lives on."""
    return party.partition("~")[0]


def life_of(party: str) -> str:
    """The life that the party with this id is of."""
    return party.partition("/")[0]


def life_number(life: str) -> int:
    """Which life of its node it is."""
    return int(life.partition("~")[2].partition(".")[0])

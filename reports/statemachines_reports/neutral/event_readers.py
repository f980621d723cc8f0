"""Event readers: what turns the `data` of a step into the event that the machine took, and a record into a value."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Final, get_type_hints

import msgspec
from msgspec.structs import astuple

from statemachines.kernel import Fsm, name_of
from statemachines.kernel.pmap import dec_hook, enc_hook
from statemachines.trace.row import LOCAL, data_of

Read = Callable[[str], Any]


class LocalTime(msgspec.Struct):
    """The time of a step by the clock of its node, where the data names one."""

    now_ns: int = msgspec.field(name=LOCAL, default=-1)


READ_LOCAL: Final = msgspec.json.Decoder(LocalTime).decode
_ENCODE: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode


class MachineReader:
    """One machine: what reads its record, and its events by their names; `reader_of` makes it, once."""

    def __init__(self, fsm: Fsm[Any]) -> None:
        self.fsm = fsm
        self.step = fsm.step

    @cached_property
    def record(self) -> Read:
        """Reads a record."""
        return msgspec.json.Decoder(self.fsm.record_type, dec_hook=dec_hook).decode

    @cached_property
    def events(self) -> dict[str, Read]:
        """Name of an event -> what reads it."""
        return {name_of(kind): event_reader(kind) for kind in self.fsm.alphabet}


reader_of: Final = cache(MachineReader)
"""Of a machine."""


def event_reader(kind: type[msgspec.Struct]) -> Read:
    """Reads the fields of an event, as `data_of` writes them."""
    if _is_plain(kind):
        return msgspec.json.Decoder(kind, dec_hook=dec_hook).decode
    hints = get_type_hints(kind, include_extras=True)
    fields = msgspec.defstruct(kind.__name__, [(name, hints[name]) for name in kind.__struct_fields__])
    decode = msgspec.json.Decoder(fields, dec_hook=dec_hook).decode
    return lambda data: kind(*astuple(decode(data)))


def _is_plain(kind: type[msgspec.Struct]) -> bool:
    """Whether its own form in JSON is an object of its fields, and of nothing else."""
    config = kind.__struct_config__
    return not config.array_like and not config.tag and kind.__struct_fields__ == kind.__struct_encode_fields__


class DataWriters(dict[type[msgspec.Struct], Callable[[Any], str]]):
    """`writers[type(event)](event)` is `data_of(event)`, sooner where the event has a plain form."""

    def __missing__(self, kind: type[msgspec.Struct]) -> Callable[[Any], str]:
        plain = _is_plain(kind) and not kind.__struct_config__.omit_defaults
        self[kind] = encode if plain else data_of
        return self[kind]


def encode(value: Any) -> str:
    """The own form of a value in JSON."""
    return _ENCODE(value).decode()

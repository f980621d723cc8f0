"""Word: one word of the shared memory as a component: one access to it is one call."""

from __future__ import annotations

import msgspec

from statemachines.cursor_recovery.memory import CompareAndSwap, Load, Loaded, Store, Stored, Swapped, check_word
from statemachines.kernel import Answer
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.property import View


class WordLocal(msgspec.Struct, frozen=True, gc=False):
    """What it holds."""

    value: int


class Word(Actor):
    """The word at `address`, `value` to begin with.  Whoever has a name is answered."""

    def __init__(self, address: str, value: int = 0) -> None:
        super().__init__(address)
        self.value = value

    def initial(self) -> WordLocal:
        return WordLocal(self.value)

    def inputs(self, local: WordLocal) -> tuple[object, ...]:
        return ()

    def react(self, local: WordLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        answer: Answer
        match envelope.event:
            case Load():
                answer = Loaded(local.value, 0)
            case Store(address, value):
                local, answer = WordLocal(check_word(address, value)), Stored()
            case CompareAndSwap(address, expected, value):
                answer = Swapped(local.value == expected)
                local = WordLocal(check_word(address, value)) if answer.done else local
            case other:
                raise TypeError(f"a word does not take a {type(other).__name__}")
        back = (Envelope(self.name, envelope.sender, answer),) if envelope.sender else ()
        return Reaction(local, (), back)

    def describe(self, local: WordLocal) -> str:
        return f"{local.value:#x}" if local.value > 10**9 else str(local.value)

    def holds(self, unit: int, size: int) -> View:
        """What a property reads of it: its value in so many `unit`s, which is less than `size`."""
        return View(self.name, size, lambda local: local.value // unit)

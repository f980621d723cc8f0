"""Layout: a global state as one or two 64-bit words; fields get wider as numbers grow."""

from __future__ import annotations

from collections.abc import Sequence

from statemachines.kernel import ConfigurationError

WORD_BITS = 64


class StateLayout:
    """Where each field lies: `word`, `shift` and `bits` by field.  Raises `ConfigurationError` beyond two words."""

    def __init__(self, bits: Sequence[int]) -> None:
        self.bits = tuple(bits)
        used = [0, 0]
        word, shift = [], []
        for width in self.bits:
            place = 0 if used[0] + width <= WORD_BITS else 1
            if used[place] + width > WORD_BITS:
                rule = (
                    f"must fit into two words of {WORD_BITS} bits, no field across both (fields: "
                    f"{', '.join(map(str, self.bits))}); fewer messages in flight, or smaller bounds"
                )
                raise ConfigurationError("size of a state", f"{sum(self.bits)} bits", rule)
            word.append(place)
            shift.append(used[place])
            used[place] += width
        self.word = tuple(word)
        self.shift = tuple(shift)
        self.words = 2 if used[1] else 1

    def widen(self, largest: Sequence[int]) -> StateLayout:
        """This layout, or one with room for these values of the fields, which are the largest there are.

        What grows gets a bit to spare, since whoever holds states must then pack all of them anew; but none is spared
        where that would cost a second word.
        """
        needed = [max(1, value.bit_length()) for value in largest]
        if all(bits <= have for bits, have in zip(needed, self.bits, strict=True)):
            return self
        kept = [max(bits, have) for bits, have in zip(needed, self.bits, strict=True)]
        roomy = [bits + (bits > have) for bits, have in zip(kept, self.bits, strict=True)]
        return StateLayout(next((some for some in (roomy, kept) if sum(some) <= WORD_BITS), needed))

    def pack(self, state: Sequence[int]) -> tuple[int, ...]:
        """The words of a state."""
        words = [0] * self.words
        for value, word, shift in zip(state, self.word, self.shift, strict=True):
            words[word] |= value << shift
        return tuple(words)

    def unpack(self, words: Sequence[int]) -> tuple[int, ...]:
        """The fields of a state."""
        return tuple(
            int(words[word]) >> shift & (1 << bits) - 1
            for word, shift, bits in zip(self.word, self.shift, self.bits, strict=True)
        )

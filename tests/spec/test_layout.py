"""Packing of states: Hypothesis over widths and values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.layout import StateLayout

WIDTHS = st.lists(st.integers(1, 24), min_size=1, max_size=8).filter(lambda widths: sum(widths) <= 100)


@given(WIDTHS, st.data())
def test_what_is_packed_is_unpacked(widths, data):
    layout = StateLayout(widths)
    state = tuple(data.draw(st.integers(0, (1 << bits) - 1)) for bits in widths)
    words = layout.pack(state)
    assert len(words) == layout.words <= 2
    assert all(0 <= word < 1 << 64 for word in words)
    assert layout.unpack(words) == state


def test_one_word_where_it_fits():
    assert StateLayout([32, 32]).words == 1
    assert StateLayout([32, 32, 1]).words == 2


def test_fields_only_grow():
    layout = StateLayout([4, 4])
    assert layout.widen([15, 3]) is layout
    assert layout.widen([16, 3]).bits == (6, 4)


def test_what_grows_gets_a_bit_to_spare_only_within_one_word():
    assert StateLayout([32, 31]).widen([1 << 32, 1]).bits == (33, 31)
    assert StateLayout([32, 31]).widen([1 << 32, 1]).words == 1
    assert StateLayout([32, 30]).widen([1 << 32, 1]).bits == (34, 30)
    assert StateLayout([32, 32]).widen([1 << 32, (1 << 32) - 1]).bits == (33, 32)


def test_bits_to_spare_are_given_back_before_a_second_word_is_taken():
    assert StateLayout([32, 32]).widen([1 << 32, 1 << 30]).bits == (33, 31)
    assert StateLayout([32, 32]).widen([1 << 32, 1 << 30]).words == 1


def test_beyond_two_words_is_refused():
    with pytest.raises(ConfigurationError, match="two words"):
        StateLayout([60, 60, 60])

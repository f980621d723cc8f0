"""Texts of exchanges that would test nothing are refused, and an answer that is another fails."""

import pytest
from exchanges import ExchangeError, open_scene, read_blocks


@pytest.mark.parametrize(
    "text",
    [
        "XX-1 Title.",
        "XX-1 Title.\nc PUBLISH t x",
        "XX-1 Title.\nc PUBLISH t x -> later",
        "XX-1 Title.\nc silent\n\nXX-1 Title.\nc silent",
        "c silent\nd silent",
        "XX-1 Title.\nc silent; sings",
        "XX-1 Title.\nc PUBLISHED t -> 0",
        "XX-1 Title.\nsings c\nc silent",
        "XX-1 Title.\nplay away\nc silent",
        "opening away\nc silent\n\nXX-1 Title.\nc silent",
    ],
)
def test_a_text_that_would_test_nothing_is_refused(text):
    with pytest.raises((ExchangeError, KeyError)):
        list(read_blocks(f"# Head.\n\n{text}"))


@pytest.mark.parametrize(
    "step",
    [
        "PINGREQ\nlog 0 is refused (0x9E)",
        "PINGREQ\nstored 1",
        "PUBLISH t x -> 0",
        "CONNECT -> present",
        "CONNECT -> 0x87",
        "CONNECT -> 0 receive_maximum=1",
        "SUBSCRIBE t -> 0",
        "SUBSCRIBE t; PUBLISH t x => c retain",
        "SUBSCRIBE t; PUBLISH t x => c qos=0",
        "SUBSCRIBE t; PUBLISH t x qos=0; < t y qos=0",
        "PUBLISH t x -> later; unheard; < PUBACK 1",
        "raw f0 00 -> ends 0x81",
        "again -> 0x87",
    ],
)
async def test_what_comes_otherwise_fails(tmp_path, step, caplog):
    with pytest.raises(AssertionError):
        async with open_scene(tmp_path, log=caplog.records) as scene:
            await scene.play(*f"c {step}".splitlines())

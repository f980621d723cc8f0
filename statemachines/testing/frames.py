"""Frames: hostile input for whoever reads frames, made from a seed: the same seed, the same bytes.

    fuzz(testing_of("lock_service").readers, seed=1, count=20_000)

`readers` are the roles of a protocol.  `fuzz` gives every input to what reads it in a node (frames, hello, proof,
packets) in pieces of any size.
Each is taken or refused with a `FrameError`; whatever else is raised comes out as `Escaped`, with what repeats it.
`attack` says the same things to a node that lives.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from statemachines.drivers.greeting import GREETING_MAX, NONCE_SIZE, Greeting, Terms
from statemachines.kernel import GaplessError
from statemachines.testing.protocol import Reader
from statemachines.testing.struct_values import draw_example
from statemachines.wire import (
    FRAME_MAX,
    VERSION,
    FrameError,
    Frames,
    Hello,
    Packet,
    PacketCodec,
    encode_hello,
    frame,
    frame_hello,
    hello_of,
)

SECRET: Final = b"the secret of the fuzzer"
PIECES_MAX: Final = 4
SHOWN_BYTES: Final = 100

Readers = Mapping[str, Reader]


class EscapedError(GaplessError):
    """Something other than a `FrameError` came of an input: `kind`, and the command that makes it again."""

    def __init__(self, kind: str, seed: int, number: int, data: bytes, error: BaseException) -> None:
        self.kind = kind
        shown = data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")
        super().__init__(
            f"{type(error).__name__}: {error}, by input {number} of fuzz(seed={seed}), a {kind} of {len(data)} bytes: "
            f"{shown}"
        )


class FuzzCounts(msgspec.Struct):
    """What came of it: inputs by kind, how many frames were taken, how many inputs were refused."""

    inputs: int = 0
    taken: int = 0
    refused: int = 0
    kinds: dict[str, int] = {}


class Input(msgspec.Struct, frozen=True):
    """`data` for a node of role `reader`; `after_hello`: the greeting is over when it comes."""

    kind: str
    reader: str
    data: bytes
    after_hello: bool


# -- making ---------------------------------------------------------------------------------------------------------


class Side:
    """The reader of a role, and what its peer might say to it."""

    def __init__(self, readers: Readers, role: str) -> None:
        one = self.reader = readers[role]
        self.role = role
        self.roles = tuple(sorted(readers))
        self.codec: PacketCodec[Any] = PacketCodec(one.takes)
        self.speaker = one.speaker
        self.speaker_life = readers[one.speaker].life if one.speaker in readers else f"{one.speaker}~1"
        self._kinds = get_args(one.takes) or (one.takes,)

    @property
    def life(self) -> str:
        """One that it might have."""
        return self.reader.life

    def packet(self, chance: random.Random) -> bytes:
        """A whole frame that it takes."""
        sender = f"{self.speaker_life}/{chance.randrange(4)}"
        to = chance.choice((*self.reader.names, self.life, f"{self.life}/{chance.randrange(4)}"))
        about = to if self.reader.dials else sender
        makers = self.reader.messages
        message = chance.choice(makers)(chance, about) if makers else draw_example(chance.choice(self._kinds), chance)
        return self.codec.encode(Packet(sender, to, chance.getrandbits(chance.choice((1, 62))), message))

    def is_taken(self, data: bytes) -> bool:
        """Whether it is a whole frame with what the role takes."""
        try:
            return bool([self.codec.decode(body) for body in Frames().feed(data)])
        except FrameError:
            return False


Sides = Mapping[str, Side]


def sides_of(readers: Readers) -> dict[str, Side]:
    """By role."""
    return {role: Side(readers, role) for role in readers}


def make_inputs(readers: Readers, seed: int, count: int) -> Iterator[Input]:
    """`count` inputs, all kinds in turn."""
    chance = random.Random(seed)
    sides = sides_of(readers)
    for number in range(count):
        kind, make = KINDS[number % len(KINDS)]
        side = sides[chance.choice(sorted(sides))]
        yield Input(kind, side.role, *make(chance, side, sides))


def mutate_bytes(chance: random.Random, data: bytes) -> bytes:
    """With some bytes changed, taken out, put in, or doubled."""
    body = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(body)) if body else 0
        match chance.randrange(4):
            case 0 if body:
                body[at] = chance.randrange(256)
            case 1 if body:
                del body[at]
            case 2:
                body.insert(at, chance.randrange(256))
            case _:
                body[at:at] = body[at : at + chance.randint(1, 8)]
    return bytes(body)


def random_bytes(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    return chance.randbytes(chance.randint(1, 200)), chance.random() < 0.5


def random_body(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    """A frame, and rubbish in it."""
    return frame(chance.randbytes(chance.randint(0, 60))), chance.random() < 0.5


def mutate_packet(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    return mutate_bytes(chance, side.packet(chance)), True


def mutate_body(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    """Whose length is right: it reaches the decoder."""
    return frame(mutate_bytes(chance, side.packet(chance)[4:])), True


def truncate_frame(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    whole = side.packet(chance)
    return whole[: chance.randrange(len(whole))], True


def oversize(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    """A length that nobody allows, or that a stranger is not allowed."""
    known = chance.random() < 0.5
    most = FRAME_MAX if known else GREETING_MAX
    size = chance.choice((most + 1, 2**31, 2**32 - 1, chance.randint(most + 1, 2**32 - 1)))
    return size.to_bytes(4, "big") + chance.randbytes(20), known


def wrong_role(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    """What the reader itself might say, unless it takes the same (a host that relays takes what others take)."""
    data = sides[side.speaker].packet(chance) if side.speaker in sides else side.packet(chance)[1:]
    while side.is_taken(data):
        data = sides[side.speaker].packet(chance)
    return data, True


def wrong_hello(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    """A hello of another role, life, range of versions or length of nonce."""
    life = chance.choice(("fuzz~1", "fuzz", "fuzz~-1", "~1", "a b~1", "fuzz~" + "9" * 5_000, side.life))
    role = chance.choice((*side.roles, "", "x" * 300))
    nonce = chance.randbytes(chance.choice((0, 1, NONCE_SIZE, 600)))
    version, oldest = chance.choice((VERSION, VERSION + 1, 1, -1)), chance.choice((0, VERSION, 1, -1, 2**40))
    protocol, mutual = chance.choice(("gapless", "http")), chance.random() < 0.5
    return frame_hello(Hello(protocol, version, role, life, nonce, mutual, oldest=oldest)), False


def mutate_hello(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    return mutate_bytes(
        chance, encode_hello(side.speaker, side.speaker_life, nonce=chance.randbytes(NONCE_SIZE))
    ), False


def wrong_proof(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    """A good hello, then what is no proof, and a packet at once."""
    hello = encode_hello(side.speaker, side.speaker_life, nonce=chance.randbytes(NONCE_SIZE))
    proof = frame(msgspec.msgpack.encode(chance.choice((chance.randbytes(32), b"", "proof", 7, None, [1]))))
    return hello + proof + side.packet(chance), False


def make_whole(chance: random.Random, side: Side, sides: Sides) -> tuple[bytes, bool]:
    """Nothing wrong with it: so that what is refused is refused for its fault."""
    return side.packet(chance), True


KINDS: Final[tuple[tuple[str, Callable[[random.Random, Side, Sides], tuple[bytes, bool]]], ...]] = (
    ("random", random_bytes),
    ("random body", random_body),
    ("mutated", mutate_packet),
    ("mutated body", mutate_body),
    ("truncated", truncate_frame),
    ("oversize", oversize),
    ("wrong role", wrong_role),
    ("wrong hello", wrong_hello),
    ("mutated hello", mutate_hello),
    ("wrong proof", wrong_proof),
    ("whole", make_whole),
)


# -- giving ---------------------------------------------------------------------------------------------------------


def fuzz(readers: Readers, seed: int, count: int) -> FuzzCounts:
    """Give `count` inputs to what reads them in a node; raises `Escaped`."""
    sides = sides_of(readers)
    pieces = random.Random(-1 - seed)
    kinds: Counter[str] = Counter()
    came = FuzzCounts()
    for number, one in enumerate(make_inputs(readers, seed, count)):
        kinds[one.kind] += 1
        came.inputs += 1
        try:
            came.taken += read(sides[one.reader], one, pieces)
        except FrameError:
            came.refused += 1
        except Exception as error:
            raise EscapedError(one.kind, seed, number, one.data, error) from error
    came.kinds = dict(sorted(kinds.items()))
    return came


def read(side: Side, one: Input, chance: random.Random) -> int:
    """As a connection reads it, cut at any places; how many frames it took."""
    taken = 0
    greeting = None if one.after_hello else greeting_of(side)
    frames = Frames(FRAME_MAX if greeting is None else GREETING_MAX)
    cuts = sorted(chance.randint(0, len(one.data)) for _ in range(chance.randrange(PIECES_MAX)))
    for begin, end in zip([0, *cuts], [*cuts, len(one.data)], strict=True):
        for body in frames.feed(one.data[begin:end]):
            if greeting is None:
                side.codec.decode(body)
            else:
                greeting.feed(body)
                if greeting.done:
                    raise AssertionError("a stranger is let in")
            taken += 1
    return taken


def greeting_of(side: Side) -> Greeting:
    """A node that shares a secret, and waits for a hello."""
    mine = hello_of(side.role, side.life, nonce=bytes(NONCE_SIZE))
    return Greeting(mine, side.speaker, dialled=side.reader.dials, terms=Terms((SECRET,)))


async def attack(
    readers: Readers, role: str, address: tuple[str, int], seed: int, count: int, *, store: str = ""
) -> int:
    """Say `count` inputs to a node of this role that lives and listens, each on a connection of its own; how many of
    them it ended by itself within the time that a well-behaved peer would get; `store`: the identity of the store that
    the node works on.  Raises `OSError` when nobody listens there any more."""
    ended = 0
    side = Side(readers, role)
    hello = encode_hello(side.speaker, side.speaker_life, store=store)
    for one in make_inputs(readers, seed, count):
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(hello + one.data if one.after_hello else one.data)
            writer.write_eof()
            while await reader.read(65_536):
                pass
            ended += 1
        except ConnectionError:
            ended += 1
        finally:
            writer.transport.abort()
    return ended

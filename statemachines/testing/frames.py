"""Frames: hostile input for whoever reads frames, made from a seed: the same seed, the same bytes.

`fuzz(seed, count)` gives every input to what reads it in a node (frames, hello, proof, packets) in pieces of any size.
Each is taken or refused with a `FrameError`; whatever else is raised comes out as `Escaped`, with what repeats it.
`attack` says the same things to a node that lives.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from statemachines.drivers.greeting import GREETING_MAX, NONCE_SIZE, Greeting
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.kernel import GaplessError
from statemachines.shared_subscriptions.message import (
    BorrowerMessage,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderMessage,
    LeaderWanted,
    Ping,
    PingResponse,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    Undeclared,
    UpdateProgress,
)
from statemachines.wire import (
    FRAME_MAX,
    VERSION,
    Codec,
    FrameError,
    Frames,
    Hello,
    Packet,
    encode_hello,
    frame,
    hello_of,
)

ROLES: Final = {"leader": "consumer", "consumer": "leader"}
"""Who reads -> who speaks to it."""

CODECS: Final[dict[str, Codec[Any]]] = {"leader": Codec(BorrowerMessage), "consumer": Codec(LeaderMessage)}
"""By who reads."""

SPOKEN: Final = {"leader": LEADER.full_name, "consumer": CONSUMER.full_name}
"""What they call themselves."""

LIVES: Final = {"leader": "leader-1~1", "consumer": "fuzz~1"}
SECRET: Final = b"the secret of the fuzzer"
PIECES_MAX: Final = 4
SHOWN_BYTES: Final = 100


class Escaped(GaplessError):
    """Something other than a `FrameError` came of an input: `kind`, and the command that makes it again."""

    def __init__(self, kind: str, seed: int, number: int, data: bytes, error: BaseException) -> None:
        self.kind = kind
        shown = data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")
        super().__init__(
            f"{type(error).__name__}: {error}, by input {number} of fuzz(seed={seed}), a {kind} of {len(data)} bytes: "
            f"{shown}"
        )


class Fuzzed(msgspec.Struct):
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


def inputs(seed: int, count: int) -> Iterator[Input]:
    """`count` inputs, all kinds in turn."""
    chance = random.Random(seed)
    for number in range(count):
        kind, make = KINDS[number % len(KINDS)]
        reader = chance.choice(sorted(ROLES))
        yield Input(kind, reader, *make(chance, reader))


def a_packet(chance: random.Random, reader: str) -> bytes:
    """A whole frame that `reader` takes."""
    sender = f"{LIVES[ROLES[reader]]}/{chance.randrange(4)}"
    to = chance.choice(("leader", LIVES[reader], f"{LIVES[reader]}/{chance.randrange(4)}"))
    borrower = sender if reader == "leader" else to
    message = chance.choice(MESSAGES[reader])(chance, borrower)
    return CODECS[reader].encode(Packet(sender, to, chance.getrandbits(chance.choice((1, 62))), message))


def a_number(chance: random.Random) -> int:
    """Small, or any that a message can carry."""
    return chance.getrandbits(chance.choice((2, 8, 63)))


def some_reports(chance: random.Random) -> tuple[Report, ...]:
    streams = [f"0.0/t{number}" for number in range(chance.randrange(4))]
    return tuple(Report(stream, a_number(chance), a_number(chance), chance.random() < 0.5) for stream in streams)


Make = Callable[[random.Random, str], Any]

MESSAGES: Final[dict[str, tuple[Make, ...]]] = {
    "leader": (
        lambda c, b: LeaderWanted(b, "g", "#"),
        lambda c, b: Ping(b, a_number(c), a_number(c), a_number(c), some_reports(c)),
        lambda c, b: UpdateProgress(b, a_number(c), a_number(c), "0.0/t", a_number(c), a_number(c), c.random() < 0.5),
        lambda c, b: RevokeFinished(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: Disconnect(b, a_number(c), a_number(c), some_reports(c)),
    ),
    "consumer": (
        lambda c, b: LeaderConnectResponse(b, "leader-1~1/1", a_number(c), a_number(c)),
        lambda c, b: Undeclared(b),
        lambda c, b: PingResponse(b, a_number(c), a_number(c), a_number(c)),
        lambda c, b: Grant(b, a_number(c), a_number(c), "0.0/t", a_number(c), a_number(c)),
        lambda c, b: Revoke(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: Revoked(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: Invalidate(b, a_number(c), a_number(c)),
    ),
}
"""By who reads: messages that it takes."""


def mutated(chance: random.Random, data: bytes) -> bytes:
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


def random_bytes(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    return chance.randbytes(chance.randint(1, 200)), chance.random() < 0.5


def random_body(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    """A frame, and rubbish in it."""
    return frame(chance.randbytes(chance.randint(0, 60))), chance.random() < 0.5


def mutated_packet(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    return mutated(chance, a_packet(chance, reader)), True


def mutated_body(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    """Whose length is right: it reaches the decoder."""
    return frame(mutated(chance, a_packet(chance, reader)[4:])), True


def truncated(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    whole = a_packet(chance, reader)
    return whole[: chance.randrange(len(whole))], True


def oversize(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    """A length that nobody allows, or that a stranger is not allowed."""
    known = chance.random() < 0.5
    most = FRAME_MAX if known else GREETING_MAX
    size = chance.choice((most + 1, 2**31, 2**32 - 1, chance.randint(most + 1, 2**32 - 1)))
    return size.to_bytes(4, "big") + chance.randbytes(20), known


def wrong_role(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    """What the reader itself might say."""
    return a_packet(chance, ROLES[reader]), True


def wrong_hello(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    """A hello of another role, life, version or length of nonce."""
    life = chance.choice(("fuzz~1", "fuzz", "fuzz~-1", "~1", "a b~1", "fuzz~" + "9" * 5_000, LIVES[reader]))
    role = chance.choice((LEADER.full_name, CONSUMER.full_name, "", "x" * 300))
    nonce = chance.randbytes(chance.choice((0, 1, NONCE_SIZE, 600)))
    hello = Hello(
        chance.choice(("gapless", "http")), chance.choice((VERSION, 1, -1)), role, life, nonce, chance.random() < 0.5
    )
    return frame(msgspec.msgpack.encode(hello)), False


def mutated_hello(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    role = ROLES[reader]
    return mutated(chance, encode_hello(SPOKEN[role], LIVES[role], nonce=chance.randbytes(NONCE_SIZE))), False


def wrong_proof(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    """A good hello, then what is no proof, and a packet at once."""
    role = ROLES[reader]
    hello = encode_hello(SPOKEN[role], LIVES[role], nonce=chance.randbytes(NONCE_SIZE))
    proof = frame(msgspec.msgpack.encode(chance.choice((chance.randbytes(32), b"", "proof", 7, None, [1]))))
    return hello + proof + a_packet(chance, reader), False


def whole(chance: random.Random, reader: str) -> tuple[bytes, bool]:
    """Nothing wrong with it: so that what is refused is refused for its fault."""
    return a_packet(chance, reader), True


KINDS: Final[tuple[tuple[str, Callable[[random.Random, str], tuple[bytes, bool]]], ...]] = (
    ("random", random_bytes),
    ("random body", random_body),
    ("mutated", mutated_packet),
    ("mutated body", mutated_body),
    ("truncated", truncated),
    ("oversize", oversize),
    ("wrong role", wrong_role),
    ("wrong hello", wrong_hello),
    ("mutated hello", mutated_hello),
    ("wrong proof", wrong_proof),
    ("whole", whole),
)


# -- giving ---------------------------------------------------------------------------------------------------------


def fuzz(seed: int, count: int) -> Fuzzed:
    """Give `count` inputs to what reads them in a node; raises `Escaped`."""
    pieces = random.Random(-1 - seed)
    kinds: Counter[str] = Counter()
    came = Fuzzed()
    for number, one in enumerate(inputs(seed, count)):
        kinds[one.kind] += 1
        came.inputs += 1
        try:
            came.taken += read(one, pieces)
        except FrameError:
            came.refused += 1
        except Exception as error:
            raise Escaped(one.kind, seed, number, one.data, error) from error
    came.kinds = dict(sorted(kinds.items()))
    return came


def read(one: Input, chance: random.Random) -> int:
    """As a connection reads it, cut at any places; how many frames it took."""
    codec, taken = CODECS[one.reader], 0
    greeting = None if one.after_hello else greeting_of(one.reader)
    frames = Frames(FRAME_MAX if greeting is None else GREETING_MAX)
    cuts = sorted(chance.randint(0, len(one.data)) for _ in range(chance.randrange(PIECES_MAX)))
    for begin, end in zip([0, *cuts], [*cuts, len(one.data)], strict=True):
        for body in frames.feed(one.data[begin:end]):
            if greeting is None:
                codec.decode(body)
            else:
                greeting.feed(body)
                if greeting.done:
                    raise AssertionError("a stranger is let in")
            taken += 1
    return taken


def greeting_of(reader: str) -> Greeting:
    """A node that shares a secret, and waits for a hello."""
    mine = hello_of(SPOKEN[reader], LIVES[reader], nonce=bytes(NONCE_SIZE))
    return Greeting(mine, SPOKEN[ROLES[reader]], dialled=reader == "consumer", secret=SECRET, names=None)


async def attack(address: tuple[str, int], seed: int, count: int) -> int:
    """Say `count` inputs to a leader host that lives, each on a connection of its own; how many of them it ended by
    itself within the time that a well-behaved peer would get.  Raises `OSError` when nobody listens there any more."""
    ended = 0
    hello = encode_hello(SPOKEN["consumer"], LIVES["consumer"])
    for one in inputs(seed, count):
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

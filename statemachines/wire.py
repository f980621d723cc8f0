"""Wire: packets as frames: four bytes of length (big endian), then MessagePack.

The first frame of a connection, each way, is a hello that says who speaks, and as what: a role of a protocol.  Then
packets: `[sender, to, msg, message]`, a message being `[name, fields...]`, checked against the types that the receiving
role takes.  A peer that is cut off is told why in the last frame, `["gapless refusal", why]`.  Input from the network
is hostile: a length is checked before anything is kept, and whatever is not exactly right is a `FrameError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_args

import msgspec

from statemachines.kernel import ConfigurationError, GaplessError, Message, incarnation, life_number, name_of, node_of

VERSION: Final = 4
"""A version adds fields with defaults at the end of messages, and kinds of messages; nothing else changes."""

OLDEST: Final = 4
"""The oldest version that is understood: the one before, unless the versions between differ in more than that."""

FRAME_MAX: Final = 2**20
"""Bytes of the largest frame, unless another limit is given."""

ROLE_MAX: Final = 80
"""Characters of a peer's role that are repeated."""

SHOWN_MAX: Final = 200
"""Characters of a peer's words that are repeated in an error, and so in a log."""

REFUSAL_MAX: Final = 300
"""Characters of the reason for which a peer is refused."""

Msg = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Number of a message: what a column of a trace can hold."""

_LENGTH = Struct(">I")
LENGTH_SIZE: Final = _LENGTH.size

M = TypeVar("M", bound=Message)


class FrameError(GaplessError):
    """A peer sent what is no frame, no hello, or no message for us; the connection is of no use any more."""


class Packet(msgspec.Struct, Generic[M], frozen=True, gc=False):
    """`message` from the party `sender` to the party `to`; `msg` joins send and deliver in traces."""

    sender: str
    to: str
    msg: int
    message: M


class Hello(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who speaks: its role, `protocol/role`, and the life of the node.  `protocol` is that of the wire; `nonce`: it
    shares a secret, and wants a proof over these bytes (empty: it does not); `mutual`: both sides of its TLS show
    certificates; `store`: the identity of the store that it works on ("": it has none); `oldest`: the oldest version
    that it understands (0: its own alone).  What a later hello says behind these is ignored."""

    protocol: str
    version: int
    role: str
    life: str
    nonce: bytes = b""
    mutual: bool = False
    store: str = ""
    oldest: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def node(self) -> str:
        """The node that speaks."""
        return node_of(self.life)

    @property
    def number(self) -> int:
        """Which life of the node it is."""
        return life_number(self.life)


class PacketCodec(Generic[M]):
    """Encodes any packet; decodes those whose message is of `accepts`, a union of message types."""

    def __init__(self, accepts: Any, frame_max: int = FRAME_MAX) -> None:
        self.frame_max = frame_max
        self._names = sorted(name_of(kind) for kind in get_args(accepts) or (accepts,))
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(tuple[str, str, Msg, accepts])

    def encode(self, packet: Packet[Any]) -> bytes:
        """A whole frame; raises `FrameError` for one that no peer would take."""
        (encoded,) = self.encode_all((packet,))
        return encoded

    def encode_all(self, packets: Iterable[Packet[Any]]) -> Iterator[bytes]:
        """The frames of these packets; raises `FrameError` at one that no peer would take."""
        encode, pack, frame_max = self._encoder.encode, _LENGTH.pack, self.frame_max
        for one in packets:
            try:
                body = encode((one.sender, one.to, one.msg, one.message))
            except (UnicodeEncodeError, OverflowError) as error:
                raise FrameError(f"a {name_of(type(one.message))} that cannot be written: {error}") from error
            yield pack(len(body)) + body if len(body) <= frame_max else frame(body, frame_max)

    def decode(self, body: bytes | memoryview) -> Packet[M]:
        """The packet in a frame."""
        try:
            sender, to, msg, message = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            names = ", ".join(self._names)
            raise FrameError(f"a message that is not taken here: {quote_for_log(error)}; taken are {names}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"not MessagePack: {quote_for_log(error)}") from error
        return Packet(sender, to, msg, message)


def frame(body: bytes, frame_max: int = FRAME_MAX) -> bytes:
    """The body behind its length."""
    if len(body) > frame_max:
        raise FrameError(f"a frame of {len(body)} bytes; at most {frame_max} are allowed")
    return _LENGTH.pack(len(body)) + body


def quote_for_log(words: object) -> str:
    """What a peer said, fit for a log: one line, not too long."""
    text = str(words)
    return (text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}...").encode("unicode_escape").decode()


class Frames:
    """Cuts a stream of bytes into frames; keeps at most one that is not whole."""

    __slots__ = ("_kept", "_wanted", "frame_max")

    def __init__(self, frame_max: int = FRAME_MAX) -> None:
        self.frame_max = frame_max
        """Holds from the next frame on: more may be allowed to a peer that is known."""
        self._kept = bytearray()
        self._wanted = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._kept)

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The bodies of the frames that are whole now; raises `FrameError` at one that is too large."""
        if self._kept:
            # A frame may come byte by byte: what is kept is copied when it is whole, not each time.
            self._kept += data
            if len(self._kept) < self._wanted:
                return
            data, self._kept = bytes(self._kept), bytearray()
        view = memoryview(data)
        begin, end = 0, len(data)
        unpack = _LENGTH.unpack_from
        wanted = LENGTH_SIZE
        while end - begin >= LENGTH_SIZE:
            (size,) = unpack(data, begin)
            if size > self.frame_max:
                raise FrameError(f"a frame of {size} bytes; at most {self.frame_max} are allowed")
            after = begin + LENGTH_SIZE + size
            if after > end:
                wanted = LENGTH_SIZE + size
                break
            yield view[begin + LENGTH_SIZE : after]
            begin = after
        if begin < end:
            self._kept, self._wanted = bytearray(view[begin:]), wanted


def hello_of(role: str, life: str, *, nonce: bytes = b"", mutual: bool = False, store: str = "") -> Hello:
    """The hello of a node of this version."""
    return Hello("gapless", VERSION, role, life, nonce, mutual, store, OLDEST if OLDEST < VERSION else 0)


def encode_hello(role: str, life: str, *, nonce: bytes = b"", mutual: bool = False, store: str = "") -> bytes:
    """The first frame of a connection."""
    return frame_hello(hello_of(role, life, nonce=nonce, mutual=mutual, store=store))


def frame_hello(hello: Hello) -> bytes:
    """The hello as a frame."""
    return frame(msgspec.msgpack.encode((hello.protocol, *list_fields(hello))))


def list_fields(hello: Hello) -> tuple[int | str | bytes | bool, ...]:
    """All that a hello says, as it is written and proved: `oldest` is left out where it is 0."""
    fields: tuple[int | str | bytes | bool, ...] = msgspec.structs.astuple(hello)[1:]
    return fields if hello.oldest else fields[:-1]


class Refusal(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The last frame to a peer that is cut off: `why`.  It is no hello, no proof and no packet."""

    protocol: Literal["gapless refusal"]
    why: Annotated[str, msgspec.Meta(max_length=REFUSAL_MAX)]


def encode_refusal(why: str) -> bytes:
    """A whole frame, small enough for any peer."""
    told = why.encode("ascii", "backslashreplace").decode()[:REFUSAL_MAX]
    return frame(msgspec.msgpack.encode(Refusal("gapless refusal", told)))


def refusal_in(body: bytes | memoryview) -> str:
    """Why a peer refuses us, fit for a log; "" where the frame is something else."""
    try:
        told = msgspec.msgpack.decode(body, type=Refusal).why
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return told.encode("unicode_escape").decode() or "it gives no reason"


def decode_hello(body: bytes | memoryview, *roles: str) -> Hello:
    """The hello of a peer that must have one of `roles`."""
    try:
        hello = msgspec.msgpack.decode(body, type=Hello)
        if hello.protocol != "gapless":
            raise FrameError("not a gapless node")
        _check_life(hello.life)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, ConfigurationError, RecursionError) as error:
        raise FrameError(f"not a hello of a gapless node: {quote_for_log(error)}") from error
    choose_version(hello)
    if hello.role not in roles:
        raise FrameError(f"is a {hello.role[:ROLE_MAX]!r}; here only a {' or a '.join(roles)} connects")
    return hello


def choose_version(peer: Hello) -> int:
    """The version that is spoken with the peer: the lower of both; raises `FrameError` where a side does not understand
    it.  Kinds of messages that a later version has added are not sent to the peer."""
    spoken = min(VERSION, peer.version)
    if spoken >= max(OLDEST, peer.oldest or peer.version):
        return spoken
    theirs, ours = _describe_range(peer.oldest, peer.version), _describe_range(OLDEST, VERSION)
    mend = f"upgrade {'this node' if peer.version > VERSION else 'that one'}"
    raise FrameError(f"speaks version {theirs} of the wire, and this node speaks {ours}; {mend}")


def _describe_range(oldest: int, newest: int) -> str:
    return f"{oldest} to {newest}" if 0 < oldest != newest else f"{newest}"


def _check_life(life: str) -> None:
    """Raises `ValueError` or `ConfigurationError` unless it is NODE~NUMBER or NODE~NUMBER.BITS as `incarnation` writes
    it: `int` alone also takes "+1", "1_0" and " 1"."""
    node, _, rest = life.partition("~")
    number, _, bits = rest.partition(".")
    if int(number) < 0 or incarnation(node, int(number), int(bits or "0", 16)) != life:
        raise ValueError(f"{life!r} is not the life of a node; one is written like consumer-1~5")

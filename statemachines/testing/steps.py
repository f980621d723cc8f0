"""Steps: what a machine does on each event, as text; pytest collects the files `steps/*.txt`.

    use mypackage: lock_server message
    let ASK = Acquire("b~1")
    start held = LOCK_SERVER LockRecord(): Acquire("a~1")

    LS-2 Whoever comes later waits.
    held, freed: ASK | ASK; Release("a~1")
        held Acquire: same [LS-2] | retry 500 ms ; waiting=('b~1')

The indented lines say what happens, and `pytest --gapless-rewrite` writes them.  A line with a clause begins a test:
the block below it.  `a, b: X; Y | Z` starts anew for each start and for each `|`, and goes on at `;`.  A line that
ends in a backslash goes on in the next.

`show: X | Y` writes the values of expressions, or their errors, where the name of a start is its record:
`show: broken(LOCK_SERVER, replace(held, holder=""))`, the clauses of the invariants that a record breaks.

In place of an event: `@1500` lets time pass until 1 500 ms, each timer fires when it is due; `fire` goes to the next
timer.  `start s = MACHINE RECORD with Service(), Service(): ...` answers what is asked of these services at once;
`service <- Request()` is somebody else's request, `service deaf` leaves what is asked unanswered, `service answers`
ends that.

Of a declared process, `start host = PROCESS RECORD with ...`, an event is a call of the application; `(party, event)`
is fed to a party, `(sender, party, message)` comes from elsewhere, and each step of a party has a line.

Each step is compared with the step of `transitions`, and the invariants of the machine are checked.  A line says: who,
on what, at which millisecond (0 is not said), the status after it, the clause of the row, (steps of child machines),
the effects, and after `;` or in a line of their own the fields that have other values.

Words of a steps text: values written as Python expressions, of the names that it may use and nothing else.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from difflib import unified_diff
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from statemachines.kernel import (
    Ask,
    Begin,
    CancelTimer,
    ConfigurationError,
    Feed,
    GaplessError,
    Map,
    Node,
    Process,
    ProcessRunner,
    ProtocolError,
    Send,
    SetTimer,
    Step,
    Tell,
)
from statemachines.kernel.pmap import in_order

OPERATIONS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift, ast.BitOr: operator.or_,
}  # fmt: skip
OPEN, CLOSE = "([{", ")]}"


def words_of(module: str) -> dict[str, Any]:
    """The public names of a module, other modules left out."""
    found = vars(import_module(module)).items()
    return {name: value for name, value in found if not name.startswith("_") and not isinstance(value, ModuleType)}


def split_outside(text: str, mark: str) -> list[str]:
    """`text` cut at each `mark` that stands outside of brackets and quotes, without what is blank around the parts."""
    return [one.strip() for one in _cut(text, mark)]


def _cut(text: str, mark: str) -> Iterator[str]:
    depth, quote, began = 0, "", 0
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif not depth and text.startswith(mark, at):
            yield text[began:at]
            began = at + len(mark)
        else:
            depth += (sign in OPEN) - (sign in CLOSE)
    yield text[began:]


class StepsError(ConfigurationError):
    """A steps text that cannot be played."""


class StepsWords(dict[str, Any]):
    """Name -> value; `look_up` gives the value of any other name."""

    def __init__(self, look_up: Callable[[str], Any]) -> None:
        super().__init__()
        self._look_up = look_up

    def evaluate(self, text: str) -> Any:
        """The value of an expression: names, constants, attributes, calls, tuples, lists, dictionaries, arithmetic.

        Raises `StepsError` for any other form.
        """
        try:
            return self._value(ast.parse(text, mode="eval").body)
        except SyntaxError as error:
            raise StepsError("steps", text, f"is no expression: {error.msg}") from None

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self[name] if name in self else self._look_up(name)
            case ast.Attribute(owner, name) if not name.startswith("_"):
                return getattr(self._value(owner), name)
            case ast.Subscript(owner, at):
                return self._value(owner)[self._value(at)]
            case ast.Call(function, given, named) if all(one.arg for one in named):
                return self._value(function)(
                    *self._values(given), **{str(one.arg): self._value(one.value) for one in named}
                )
            case ast.Tuple(some) | ast.List(some):
                return [*self._values(some)] if isinstance(node, ast.List) else (*self._values(some),)
            case ast.Dict(keys, values):
                return {self._value(key): self._value(value) for key, value in zip(keys, values, strict=True) if key}
            case ast.UnaryOp(ast.USub(), value):
                return -self._value(value)
            case ast.BinOp(left, operation, right) if type(operation) in OPERATIONS:
                return OPERATIONS[type(operation)](self._value(left), self._value(right))
        raise StepsError("steps", ast.unparse(node), "is no value that a steps text may have")

    def _values(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for one in nodes:
            if isinstance(one, ast.Starred):
                yield from self._value(one.value)
            else:
                yield self._value(one)


MS = 1_000_000
CLAUSE = re.compile(r"[A-Z]{1,4}-\d+\b")
SHOW = "show"
WRITTEN = "    "
WIDTH = 170
"""Signs: where a line is longer, what changes stands below it."""


class StepsBlock(NamedTuple):
    """A test: its title, which begins with the clauses that it is about, the number of its first line, its lines."""

    title: str
    number: int
    lines: list[str]


class StepsFile:
    """A steps text: `blocks`, and what its `use`, `let` and `start` lines say for all of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words = StepsWords(lambda name: self.begin(name).node.record)
        self.words["broken"] = list_broken
        self.starts: dict[str, str] = {}
        self._named: set[str] = set()
        self.blocks: list[StepsBlock] = [StepsBlock("", 1, [])]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if CLAUSE.match(line):
                self.blocks.append(StepsBlock(line, number, []))
            self.blocks[-1].lines.append(line)
        for block in self.blocks:
            lines = list_written_by_hand(block.lines)
            for line in lines:
                self._declare(line)
            if block.title and not any(map(is_run, lines)):
                raise StepsError(path.name, block.title, "has no run below it, and would test nothing")

    def _declare(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        name, _, value = rest.partition(" = ")
        if word in ("let", "start"):
            if name in self._named:
                raise StepsError(self.path.name, name, "has been named before")
            self._named.add(name)
        if word == "use":
            package, _, names = rest.partition(": ")
            for module in [f"{package}.{name}" for name in names.split()] or [package]:
                self.words.update(words_of(module))
        elif word == "let":
            self.words[name] = self.words.evaluate(value)
        elif word == "start":
            self.starts[name] = value
        elif line.strip() and not (line.startswith("#") or CLAUSE.match(line) or is_run(line)):
            raise StepsError(
                self.path.name, line, "is no line of steps: use, let, start, # or a clause begins one, or START: EVENTS"
            )

    def play(self, block: StepsBlock) -> list[str]:
        """The lines of the block, with what happens now below each run."""
        played: list[str] = []
        line = ""
        for part in block.lines:
            if part.startswith(WRITTEN):
                continue
            played.append(part)
            line += part.removesuffix("\\")
            if part.endswith("\\"):
                continue
            if is_run(line):
                played += self._run(line)
            line = ""
        return played

    def find_difference(self, block: StepsBlock) -> str:
        """How what happens now differs from what the block says ("": not at all)."""
        first = f"{self.path.name}:{block.number}"
        return "\n".join(unified_diff(block.lines, self.play(block), first, "what happens", n=2, lineterm=""))

    def rewrite(self) -> None:
        """Write down what happens now."""
        self.path.write_text("\n".join((*chain(*map(self.play, self.blocks)), "")), encoding="utf-8")

    def _run(self, line: str) -> Iterator[str]:
        starts, _, runs = line.partition(": ")
        if starts == SHOW:
            yield from (WRITTEN + self._show(value) for value in split_outside(runs, " | "))
            return
        for start, run in product(starts.split(", "), split_outside(runs, " | ")):
            stepped = self.begin(start)
            stepped.is_silent = False
            self._feed(stepped, run)
            yield from stepped.said

    def _show(self, value: str) -> str:
        try:
            return say_value(self.words.evaluate(value))
        except StepsError:
            raise
        except GaplessError as error:
            return f"{type(error).__name__}: {error}"

    def begin(self, start: str) -> SteppedMachine:
        """A machine after all events of a start.  Raises `StepsError` for a start that there is not."""
        if start not in self.starts:
            rule = f"is no name here: `use` the module that has it, or one of the starts {', '.join(self.starts)}"
            raise StepsError(self.path.name, start, rule)
        first, *events = split_outside(self.starts[start], ": ")
        if first in self.starts:
            stepped = self.begin(first)
            stepped.name = start
        else:
            machine, *services = split_outside(first, " with ")
            fsm, _, record = machine.partition(" ")
            given = self.words.evaluate(f"({services[0]},)") if services else ()
            stepped = SteppedMachine(start, self.words.evaluate(fsm), self.words.evaluate(record), given)
        for run in events:
            self._feed(stepped, run)
        if stepped.refused:
            raise StepsError(self.path.name, start, f"does not begin: it refuses {stepped.refused}")
        return stepped

    def _feed(self, stepped: SteppedMachine, run: str) -> None:
        for event in filter(None, split_outside(run, ";")):
            words = event.split(" ", 2)
            if event.startswith("@"):
                stepped.wait(int(event[1:]) * MS)
            elif event == "fire":
                stepped.fire()
            elif words[0] in stepped.services and words[1:2] == ["<-"]:
                stepped.apply(words[0], self.words.evaluate(words[2]))
            elif words[0] in stepped.services and words[1:] in (["deaf"], ["answers"]):
                stepped.deaf = stepped.deaf - {words[0]} | ({words[0]} if words[1] == "deaf" else set())
            else:
                stepped.feed(self.words.evaluate(event))


def list_written_by_hand(lines: Any) -> list[str]:
    """Lines that no run wrote, those that go on put together."""
    text = "\n".join(line for line in lines if not line.startswith(WRITTEN))
    return text.replace("\\\n", "").splitlines()


def list_broken(fsm: Any, record: Any) -> tuple[str, ...]:
    """The clauses of the machine's invariants that the record breaks."""
    return tuple(one.clause for one in fsm.invariants if not one.holds(record))


def is_run(line: str) -> bool:
    """Whether a line feeds events to machines."""
    return re.match(r"(?!use |let |start )\w+(, \w+)*: ", line) is not None


class SteppedMachine:
    """A machine with its timers, and with services that answer at once; `said`: a line for each step, but while it
    `is_silent`."""

    def __init__(self, name: str, fsm: Any, record: Any, services: tuple[Any, ...]) -> None:
        self.name = name
        self.said: list[str] = []
        self.is_silent = True
        self.now_ns = 0
        self.services = {one.name: one for one in services}
        self.states = {one.name: one.initial() for one in services}
        self.deaf: set[str] = set()
        self.refused = ""
        self._before = {name: record}
        if isinstance(fsm, Process):
            self.node: Any = ProcessRunner(fsm, record, observe=self._saw, observe_own=self._saw, check=True)
            self._before = {record.id: record} | {party: one.record for party, one in self.node.nodes.items()}
        else:
            self.node = Node(fsm, record, name=name, now_ns=0, observe=self._saw, check=True)

    def feed(self, event: Any) -> None:
        """One event, and what the services answer to it."""
        try:
            effects = self._take(event)
        except (ConfigurationError, ProtocolError) as error:
            self.refused = type(event[-1] if isinstance(event, tuple) else event).__name__
            clause = f" [{error.clause}]" if isinstance(error, ProtocolError) else ""
            self.said.append(f"{WRITTEN}{self.name} {self.refused}: {type(error).__name__}{clause}")
        else:
            self._perform(effects)

    def _take(self, event: Any) -> Any:
        match event:
            case (sender, to, message):
                return self.node.receive(sender, to, message, self.now_ns)
            case (party, one):
                return self.node.feed(party, one, self.now_ns)
        return (self.node.call if isinstance(self.node, ProcessRunner) else self.node.feed)(event, self.now_ns)

    def fire(self) -> None:
        """Go to the next timer."""
        deadline = self.node.deadline()
        if deadline is None:
            raise StepsError(self.name, "fire", "no timer is armed")
        self.now_ns = max(self.now_ns, deadline)
        self._perform(self.node.fire(self.now_ns))

    def wait(self, until_ns: int) -> None:
        """Let time pass."""
        while (deadline := self.node.deadline()) is not None and deadline <= until_ns:
            self.fire()
        self.now_ns = max(self.now_ns, until_ns)

    def apply(self, service: str, request: Any) -> tuple[Any, ...]:
        """A request to one of the services, and its answers."""
        answers: tuple[Any, ...]
        self.states[service], answers = self.services[service].apply(self.states[service], request, self.now_ns)
        return answers

    def _perform(self, effects: Any) -> None:
        for one in effects:
            party, effect = one if isinstance(one, tuple) else ("", one)
            if isinstance(effect, Ask) and effect.service in self.services and effect.service not in self.deaf:
                for answer in self.apply(effect.service, effect.request):
                    self.feed((party, answer) if party else answer)

    def _saw(self, node: Any, event: Any, status: Enum, step: Step[Any], now_ns: int) -> None:
        before, self._before[node.name] = self._before[node.name], step.record
        self._before |= {one.party: one.record for one in step.effects if isinstance(one, Begin)}
        try:
            reference = node.fsm.reference_step(before, event, now_ns)
        except ProtocolError as error:
            raise AssertionError(f"{event}: `transitions` refuses it") from error
        assert step == reference, f"{event}: `transitions` takes another step"
        if self.is_silent:
            return
        after = step.record.status
        clause = node.fsm.lines[step.row].clause if step.row >= 0 else "no row"
        parts = [f"{after.value if after is not status else 'same'} [{clause}]"]
        for one in step.children:
            child: Any = one.fsm
            moved = f"{one.source.value} -> {one.dest.value}"
            parts.append(f"({one.instance or one.machine} {moved} [{child.lines[one.row].clause}])")
        parts += map(say_effect, step.effects)
        changes = ", ".join(list_changes(before, step.record, ""))
        who = self.name if node is self.node else node.name
        at = f" @{now_ns / MS:.12g}" if now_ns else ""
        line = f"{WRITTEN}{who} {type(event).__name__}{at}: {' | '.join(parts)}"
        if changes and len(line) + len(changes) < WIDTH:
            line, changes = f"{line} ; {changes}", ""
        self.said += [line, f"{WRITTEN * 2}{changes}"] if changes else [line]


def say_effect(effect: Any) -> str:
    """An effect in few words."""
    match effect:
        case SetTimer(timer, deadline_ns, key):
            return f"{timer}{key and ' ' + key} {deadline_ns / MS:.12g} ms"
        case CancelTimer(timer, key):
            return f"no {timer}{key and ' ' + key}"
        case Send(to, message):
            return f"{to}: {say_value(message)}"
        case Ask(service, request):
            return f"{service}: {say_value(request)}"
        case Tell(event):
            return f"tell: {say_value(event)}"
        case Begin(party, _, record):
            return f"begin {party}: {say_value(record)}"
        case Feed(party, event):
            return f"feed {party}: {type(event).__name__}"
    return type(effect).__name__.lower()


def say_value(value: Any) -> str:
    """A value; of a Struct its type and the fields that are not by default, the first ones without names."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return f"({', '.join(map(say_value, value))})"
    if isinstance(value, Map):
        return f"{{{', '.join(f'{key}: {say_value(one)}' for key, one in in_order(value))}}}"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    said: list[str] = []
    fields = list_fields(type(value))
    for at, field in enumerate(fields):
        one = getattr(value, field.name)
        if field.default_factory is not msgspec.NODEFAULT and one == field.default_factory():
            continue
        if one != field.default:
            said.append(say_value(one) if len(said) == at else f"{field.name}={say_value(one)}")
    return f"{type(value).__name__}({', '.join(said)})"


list_fields = cache(msgspec.structs.fields)
"""Of a type; to find them takes longer than all else."""


def list_changes(before: Any, after: Any, path: str) -> Iterator[str]:
    """What has another value after a step, each with its path; the status of the machine itself is left out."""
    if before is after:
        return
    if type(before) is type(after) and isinstance(after, msgspec.Struct):
        for name in after.__struct_fields__:
            if path or name != "status":
                below = f"{path}.{name}" if path else name
                yield from list_changes(getattr(before, name), getattr(after, name), below)
    elif isinstance(before, Map) and isinstance(after, Map):
        for key in sorted({*before, *after}):
            yield from list_changes(before.get(key), after.get(key), f"{path}[{key}]")
    elif before != after and isinstance(after, msgspec.Struct) and hasattr(after, "status"):
        yield f"{path}={type(after).__name__} {after.status.value}"
    elif before != after:
        yield f"{path}={say_value(after)}"

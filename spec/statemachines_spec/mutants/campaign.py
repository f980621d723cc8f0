"""Campaign: all mutants of a protocol, or a sample, judged one after the other; what is judged is written down at once.

The results stand in a file of JSON lines, by name of the mutant.  A campaign that was stopped goes on where it was, as
long as machines, systems and tools are what they were; otherwise it begins anew.

Code mutants: what the machines call, changed at one site each.

The text of a module is parsed once; a mutant changes one place of the tree, compiles it, and puts the code of the
function that it stands in into the function that everybody holds.  Nothing is imported anew, no object is replaced.

Reach: the functions of a protocol that a step of its machines, or of its hosts, may call.

Roots are the guards, actions, invariants, periods and keys of the machines with their children, and every method of a
`Host` that the protocol's modules have.  From there on names are followed: what a function's code names is looked up
among its globals; a name of an attribute stands for every method or property so called of a type that is known: a
record, an event, what one of their fields holds, or what some function names.  That is more than what is called, never
less, within the modules of the protocol; nothing outside them is entered.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from time import process_time
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from statemachines import catalogue, registry
from statemachines.kernel import ConfigurationError, Delegate, Fsm, Host
from statemachines.whole_file import make_folder, write_whole
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.mutants.apart import JudgingSystems, judge_apart
from statemachines_spec.mutants.code_sites import CodeChange, Sites
from statemachines_spec.mutants.judging import MutantJudge, MutantVerdict, unmet
from statemachines_spec.mutants.mutant import CODE, GROUPS, Mutant, Site, Unmade, field_types
from statemachines_spec.mutants.original import Original, Tracks
from statemachines_spec.mutants.row_mutants import row_mutants
from statemachines_spec.protocol import CheckProtocol, of_protocol


def package_of(fsm: Fsm[Any]) -> str:
    """The package whose modules are the protocol's own: that of the module in which the record is declared."""
    module: str = fsm.record_type.__module__
    return module.rpartition(".")[0] or module


class ReachedCode:
    """What the machines of one protocol reach: `functions`, in the order of their modules and lines."""

    def __init__(self, machines: Iterable[Fsm[Any]]) -> None:
        families = {member.full_name: member for one in machines for member in one.family()}
        self.machines = tuple(families.values())
        self.packages = tuple(sorted({package_of(one) for one in self.machines}))
        self._functions: dict[int, FunctionType] = {}
        self._types: dict[int, type[Any]] = {}
        self._names: set[str] = set()
        self._waiting: list[FunctionType] = []
        for root in self._roots():
            self._take(root)
        self._close()
        self.functions = tuple(sorted(self._functions.values(), key=_place))

    def is_own(self, module: str | None) -> bool:
        """Whether the module of this name is the protocol's."""
        return any(module == one or str(module).startswith(f"{one}.") for one in self.packages)

    def calls(self, root: Any, name: str) -> bool:
        """Whether a function, or one that it names, has `name` among its names (`SetTimer`, for instance)."""
        seen: set[int] = set()
        waiting = [root]
        while waiting:
            one = _plain(waiting.pop())
            if one is None or id(one) in seen or not self.is_own(one.__module__):
                continue
            seen.add(id(one))
            names = _names_in(one.__code__)
            if name in names:
                return True
            waiting += [one.__globals__[other] for other in names if other in one.__globals__]
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
        return False

    # -- roots --------------------------------------------------------------------------------------------------

    def _roots(self) -> Iterator[Any]:
        for fsm in self.machines:
            for line in fsm.lines:
                yield line.do.run if isinstance(line.do, Delegate) else line.do
                yield line.when
            for invariant in fsm.invariants:
                yield invariant.holds
                yield invariant.touched
            for timer in fsm.timers:
                yield timer.period_ns
            yield fsm.key
            yield fsm.record_type
            yield from fsm.alphabet
        for name, module in sorted(sys.modules.items()):
            if self.is_own(name):
                for value in vars(module).values():
                    if isinstance(value, type) and issubclass(value, Host) and value.__module__ == name:
                        yield value
                        yield from vars(value).values()

    # -- following names ----------------------------------------------------------------------------------------

    def _take(self, value: Any) -> None:
        if isinstance(value, type):
            self._take_type(value)
            return
        function = _plain(value)
        if function is not None and id(function) not in self._functions and self.is_own(function.__module__):
            self._functions[id(function)] = function
            self._waiting.append(function)

    def _take_type(self, of: type[Any]) -> None:
        for one in of.__mro__:
            if id(one) not in self._types and self.is_own(one.__module__):
                self._types[id(one)] = one
                for kind in field_types(one).values():
                    for inner in _inside(kind):
                        self._take(inner)
                self._take_attributes(one, self._names)

    def _take_attributes(self, of: type[Any], names: Iterable[str]) -> None:
        for name in names:
            if name in vars(of) and not name.startswith("__"):
                self._take(vars(of)[name])

    def _close(self) -> None:
        while self._waiting:
            function = self._waiting.pop()
            names = _names_in(function.__code__)
            for name in names:
                value = function.__globals__.get(name)
                if isinstance(value, ModuleType):
                    for other in names:
                        if other in vars(value):
                            self._take(vars(value)[other])
                elif value is not None:
                    self._take(value)
            for cell in function.__closure__ or ():
                self._take(cell.cell_contents)
            new = names - self._names
            self._names |= new
            for one in list(self._types.values()):
                self._take_attributes(one, new)


def _plain(value: Any) -> FunctionType | None:
    """The function inside a property, a method, a cache or a wrapper."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value if isinstance(value, FunctionType) else None


def _names_in(code: CodeType) -> set[str]:
    """Every global and attribute that it names, and functions within it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _inside(kind: Any) -> Iterator[type[Any]]:
    """The types that a type hint is made of."""
    if isinstance(kind, type):
        yield kind
    for inner in get_args(kind):
        yield from _inside(inner)


def _place(function: FunctionType) -> tuple[str, int, str]:
    return function.__module__, function.__code__.co_firstlineno, function.__qualname__


Lines = tuple[int, int]


class Text:
    """A module as text: its tree, and where its functions stand in it."""

    def __init__(self, file: str) -> None:
        self.file = file
        with open(file, encoding="utf-8") as opened:
            self.tree = ast.parse(opened.read())
        self._nodes: dict[tuple[str, int], list[ast.AST]] = {}
        self._statements: list[Lines] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                self._nodes.setdefault((node.name, first), []).append(node)
            elif isinstance(node, ast.Lambda):
                self._nodes.setdefault(("<lambda>", node.lineno), []).append(node)
            if isinstance(node, ast.stmt):
                self._statements.append(_lines_of(node))

    def node(self, function: FunctionType) -> ast.AST | None:
        """Where a function stands; None where several could be meant."""
        code = function.__code__
        found = self._nodes.get((code.co_name, code.co_firstlineno), [])
        return found[0] if len(found) == 1 else None

    def statement(self, node: ast.AST) -> Lines:
        """The lines of the smallest statement around a node; of one with a body its head."""
        first, last = _span(node)
        around = [lines for lines in self._statements if lines[0] <= first and last <= lines[1]]
        return min(around, key=lambda lines: lines[1] - lines[0], default=(first, last))


@cache
def text_of(file: str) -> Text:
    """The module in this file, parsed once."""
    return Text(file)


def code_mutants(reach: ReachedCode) -> Iterator[Mutant]:
    """All of what the machines reach, module by module, in the order of the text."""
    seen: set[tuple[str, int, int, str]] = set()
    for function in reach.functions:
        file = inspect.getsourcefile(function)
        node = None if file is None else text_of(file).node(function)
        if file is None or node is None:
            continue
        defaults = set(ast.walk(node.args)) if isinstance(node, ast.FunctionDef | ast.Lambda) else set()
        for number, (place, change) in enumerate(Sites(function, node).find(), 1):
            key = (file, *_corner(place), f"{change.label} {change.field} {change.index}")
            if key not in seen and place not in defaults:  # which were evaluated once, and are no part of its code
                seen.add(key)
                yield _mutant(function, file, node, number, place, change)


def _mutant(
    function: FunctionType, file: str, node: ast.AST, number: int, place: ast.AST, change: CodeChange
) -> Mutant:  # fmt: skip
    text = text_of(file)
    first, last = text.statement(place)
    sites: tuple[Site, ...] = tuple(("line", file, line) for line in range(first, last + 1))
    module = function.__module__.rpartition(".")[2]
    name = function.__qualname__.replace(".<locals>", "")
    if name.endswith("<lambda>"):
        name += str(function.__code__.co_firstlineno)
    what = f"{module}.{name}: {change.what}"
    label = change.label.replace(" ", "")
    return Mutant(
        f"{module}.{name}/{number}/{label}", CODE, change.kind, what, "", sites, _patch(function, text, change)
    )


def _patch(function: FunctionType, text: Text, change: CodeChange) -> Callable[[ExitStack], None]:
    def apply(stack: ExitStack) -> None:
        before = function.__code__
        after = _compiled(text, change, before)
        if len(after.co_freevars) != len(before.co_freevars):
            raise Unmade("it does not need what its closure holds any more")
        function.__code__ = after
        stack.callback(setattr, function, "__code__", before)

    return apply


def _compiled(text: Text, change: CodeChange, like: CodeType) -> CodeType:
    kept = change.make()
    try:
        module = compile(text.tree, text.file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, TypeError) as error:
        raise Unmade(f"it does not compile: {error}") from error
    finally:
        change.undo(kept)
    for code in _codes(module):
        if (code.co_qualname, code.co_firstlineno) == (like.co_qualname, like.co_firstlineno):
            return code
    raise Unmade("its function is not found in the text of its module")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _span(node: Any) -> Lines:
    return node.lineno, node.end_lineno or node.lineno


def _corner(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _lines_of(node: ast.stmt) -> Lines:
    """Of a statement with a body its head; of a `match` all of it, since its patterns stand among the bodies."""
    first, last = _span(node)
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and body[0].lineno > first:
        last = body[0].lineno - 1
    return first, last


STATES_MAX = 100_000
"""Larger systems are left out, unless they are asked for."""
LIVE_MAX = 5_000
"""In systems with more states no obligations are judged: their graphs are made in Python, and all of them for each
mutant that nothing else notices."""

Say = Callable[[str], None]


class CampaignShape(msgspec.Struct, frozen=True):
    """What is judged in: the protocol's `name` (or `module:ATTRIBUTE`), the systems and directed systems that are
    meant (none: all with at most `states_max` states)."""

    name: str
    systems: tuple[str, ...] = ()
    states_max: int = STATES_MAX


class CampaignScope:
    """The mutants of a protocol, and what they are judged in."""

    def __init__(self, shape: CampaignShape) -> None:
        self.shape = shape
        self.protocol = registry.protocol(shape.name)
        self.part: CheckProtocol = of_protocol(shape.name)
        self.reach = ReachedCode(
            (*catalogue.machines(self.protocol.name), *catalogue.process_machines(self.protocol.name))
        )
        self.left_out: tuple[str, ...] = ()

    @cached_property
    def mutants(self) -> tuple[Mutant, ...]:
        """All of them, always in the same order."""
        calls = partial(self.reach.calls, name="SetTimer")
        rows = [one for fsm in self.reach.machines for one in row_mutants(fsm, calls)]
        found = (*rows, *code_mutants(self.reach))
        names = [one.name for one in found]
        twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        if twice:
            raise ConfigurationError("mutants", ", ".join(sorted(twice)[:3]), "two of them have one name")
        return found

    def counts(self, mutants: Iterable[Mutant]) -> dict[str, dict[str, int]]:
        """Group -> kind -> how many."""
        found: dict[str, dict[str, int]] = {group: {} for group in GROUPS}
        for one in mutants:
            found[one.group][one.kind] = found[one.group].get(one.kind, 0) + 1
        return {group: kinds for group, kinds in found.items() if kinds}

    def list_directed(self) -> tuple[DirectedSystem, ...]:
        """The systems at their first size and, where the protocol has any, its directed systems."""
        systems = tuple(
            DirectedSystem(
                f"{name} ({self.part.sizes[0]})" if self.part.directed else name,
                about,
                partial(self.part.system, name),
                self.part.obligations_of,
            )
            for name, about in self.part.systems.items()
        )
        found = (*self.part.directed, *systems)
        if not self.shape.systems:
            return found
        for name in self.shape.systems:
            if not any(_means(name, one.name) for one in found):
                raise registry.make_unknown_error("system", name, [one.name for one in found])
        return tuple(one for one in found if any(_means(name, one.name) for name in self.shape.systems))

    def judge(self, say: Say) -> MutantJudge:
        """Explore everything without a mistake; what is too large is no judge.  What must happen sometimes and does not
        even then says nothing of a mutant."""
        files = {function.__code__.co_filename for function in self.reach.functions}
        tracks = Tracks(files, self.reach.machines)
        originals, left_out = [], []
        for directed in self.list_directed():
            say(f"{directed.name}: without a mistake")
            original = Original(directed, tracks, self.shape.states_max)
            walked = original.walked
            if walked.broke:
                rule = "breaks without any mistake; mend that first"
                raise ConfigurationError(f"system {directed.name!r}", walked.broke, rule)
            if not walked.complete:
                left_out.append(directed.name)
                continue
            if walked.states > LIVE_MAX:
                original.obligations = ()
            if original.obligations:
                began = process_time()
                owed = unmet(original, original.entries)
                original.live_seconds = process_time() - began
                if owed:
                    raise ConfigurationError(f"system {directed.name!r}", owed, "is never met without any mistake")
                if owed is None:
                    original.obligations = ()
            originals.append(original)
        self.left_out = tuple(left_out)
        return MutantJudge(originals)

    def print(self) -> str:
        """What the verdicts rest on, in short: it changes with the text of the machines, the systems and the tools."""
        found = blake2b(repr(self.shape).encode(), digest_size=16)
        for name, module in sorted(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and (self.reach.is_own(name) or name.startswith(("statemachines.kernel", "statemachines_spec"))):
                found.update(name.encode() + Path(file).read_bytes())
        return found.hexdigest()


def _means(name: str, directed: str) -> bool:
    return name == directed or directed.startswith(f"{name} (")


def pick_mutants(
    mutants: Sequence[Mutant], only: Sequence[str], groups: Sequence[str], sample: int, seed: int
) -> list[Mutant]:
    """Those called so (a name, or a pattern with *), of these groups, and of them a sample that `seed` draws (0: all).

    Raises `ConfigurationError` for a name that none has.
    """
    for name in only:
        if not any(fnmatchcase(one.name, name) for one in mutants):
            raise registry.make_unknown_error("mutant", name, [one.name for one in mutants[:5]], "and more: see --list")
    found = [one for one in mutants if not only or any(fnmatchcase(one.name, name) for name in only)]
    found = [one for one in found if not groups or one.group in groups]
    if sample and sample < len(found):
        drawn = set(Random(seed).sample(range(len(found)), sample))
        found = [one for number, one in enumerate(found) if number in drawn]
    return found


# -- the file -------------------------------------------------------------------------------------------------------


class CampaignHead(msgspec.Struct, frozen=True):
    """The first line: what the verdicts rest on; the `systems` that judged, once they are known."""

    protocol: str
    print: str
    systems: tuple[str, ...] = ()

    def is_of(self, other: CampaignHead) -> bool:
        """Whether verdicts of one count for the other."""
        return (self.protocol, self.print) == (other.protocol, other.print)


class CampaignResults:
    """The verdicts so far, by name, in a file.  Those of other machines, systems or tools do not count, unless `again`
    is given: then all count but those of these names that are alive."""

    def __init__(self, path: Path, head: CampaignHead, again: Collection[str] | None = None) -> None:
        self.path = path
        self.head = head
        self.verdicts: dict[str, MutantVerdict] = {}
        self.read(head, again)
        make_folder(path.parent, "--out")
        self._write()

    def read(self, head: CampaignHead, again: Collection[str] | None) -> None:
        """A line that was torn ends it."""
        if not self.path.is_file():
            return
        first, *lines = self.path.read_bytes().splitlines() or [b""]
        try:
            found = msgspec.json.decode(first, type=CampaignHead)
            same = found.is_of(head)
            if same or again is not None:
                self.head = replace(head, systems=found.systems)
            for line in lines if same or again is not None else ():
                one = msgspec.json.decode(line, type=MutantVerdict)
                if one.is_killed or one.name not in (again or ()):
                    self.verdicts[one.name] = one
        except (msgspec.DecodeError, UnicodeDecodeError):
            return

    def add_systems(self, systems: tuple[str, ...]) -> None:
        """The systems of the next verdicts, beside those that judged what is kept."""
        self.head = replace(self.head, systems=tuple(dict.fromkeys((*self.head.systems, *systems))))
        self._write()

    def _write(self) -> None:
        lines = [self.head, *self.verdicts.values()]
        write_whole(self.path, b"".join(msgspec.json.encode(one) + b"\n" for one in lines))

    def add(self, verdict: MutantVerdict) -> None:
        """It is in the file before anything else is judged."""
        self.verdicts[verdict.name] = verdict
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(verdict) + b"\n")


# -- judging --------------------------------------------------------------------------------------------------------


def judge_mutants(
    field: CampaignScope, mutants: Sequence[Mutant], results: CampaignResults, jobs: int, say: Say
) -> Iterator[MutantVerdict]:
    """Judge those that have no verdict yet, so many at a time, each apart; each as soon as it is known."""
    left = tuple(one.name for one in mutants if one.name not in results.verdicts)
    if not left:
        return
    with judge_apart(partial(_prepare, field.shape, left), jobs, say) as words:
        for word in words:
            if isinstance(word, JudgingSystems):
                results.add_systems(word.systems)
            else:
                results.add(word)
                yield word


def _prepare(
    shape: CampaignShape, names: tuple[str, ...], say: Say
) -> tuple[MutantJudge, list[Mutant], JudgingSystems]:
    """The judge of a field, and the mutants called so; where there is no other process's field at hand."""
    field = CampaignScope(shape)
    judge = field.judge(say)
    mutants = {one.name: one for one in field.mutants}
    systems = tuple(directed.name for directed in field.list_directed() if directed.name not in field.left_out)
    return judge, [mutants[name] for name in names], JudgingSystems(systems, field.left_out)

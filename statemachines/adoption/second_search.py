"""Second search: the same search again, in the opposite order and, where it can be, under another hash seed.

What depends on the order of a set, on the ids of objects or on something that counts elsewhere comes out otherwise.
The other process imports the factory; one that stands in a notebook or in a function is searched again here.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Final, NoReturn

import msgspec

from statemachines.adoption.expression import Promise, read_properties
from statemachines.adoption.model_step import ModelAction, ModelStepper, StepOutcome
from statemachines.adoption.model_value import Key
from statemachines.adoption.state_search import Bounds, StateSearch, StepDigests
from statemachines.interrupts import not_interrupted
from statemachines.kernel import ConfigurationError
from statemachines.registry import load

SEEDS: Final = ("1", "2")
PATIENCE_S: Final = 20.0
"""So much longer than the first search the second may take."""


class SearchRequest(msgspec.Struct, frozen=True):
    """All that a search needs, as another process can make it."""

    place: str
    calls: tuple[ModelAction, ...]
    holds: dict[str, Promise]
    within: dict[str, Promise]
    states_max: int
    seconds: float
    allow: tuple[str, ...] = ()
    ports: dict[str, Mapping[str, Any] | None] = {}
    raises: frozenset[str] = frozenset()
    key: Key | None = None
    automatic: bool = False


class SecondSearch:
    """A search in another process, which begins at once: `with SecondSearch(request) as second: ...`."""

    def __init__(self, request: SearchRequest) -> None:
        self._data = pickle.dumps(request)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SecondSearch:
        own = os.environ.get("PYTHONHASHSEED")
        seed = SEEDS[1] if own == SEEDS[0] else SEEDS[0]
        path = os.pathsep.join(one or os.getcwd() for one in sys.path)
        with not_interrupted():
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()"],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        asked = self._process.stdin
        assert asked is not None
        with suppress(BrokenPipeError):
            asked.write(len(self._data).to_bytes(8, "big") + self._data)
            asked.flush()
        return self

    def __exit__(self, *error: object) -> None:
        process = self._process
        assert process is not None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait()

    def read_digests(self, seconds: float) -> dict[bytes, bytes] | None:
        """What it found; None: it could not (import the factory), or had not ended after so many seconds.

        Raises `ConfigurationError` that the other search ended with.
        """
        found = self._read(seconds)
        if isinstance(found, ConfigurationError):
            raise found
        return found if isinstance(found, dict) else None

    def read_outcome(self, key: bytes) -> Any:
        """(kind and error, parts of the value) of one step there."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(key)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        return self._read(PATIENCE_S)

    def _read(self, seconds: float) -> Any:
        from threading import Timer

        process = self._process
        assert process is not None
        assert process.stdout is not None
        late = Timer(seconds, process.kill)
        late.daemon = True
        late.start()
        try:
            return pickle.load(process.stdout)
        except Exception:  # it ended early, or something else has written into its answers
            return None
        finally:
            late.cancel()


def can_import_elsewhere(place: str, factory: Any) -> bool:
    """Whether another process finds this very factory at its place."""
    module, _, name = place.partition(":")
    if not module or not name.isidentifier() or module == "__main__":
        return False
    return getattr(sys.modules.get(module), name, None) is factory


def can_send(request: SearchRequest) -> bool:
    """Whether the request reaches another process whole: a lambda, or a class of a function, does not."""
    try:
        pickle.loads(pickle.dumps(request))
    except Exception:  # whatever somebody's objects raise when they are pickled
        return False
    return True


def search_again(stepper: ModelStepper, request: SearchRequest) -> dict[bytes, bytes]:
    """The second search, in this process."""
    return _searched(stepper, request).made


def _searched(stepper: ModelStepper, request: SearchRequest) -> StepDigests:
    digests = StepDigests()
    bounds = Bounds(read_properties(request.within, "--within"), request.states_max, request.seconds)
    holds = read_properties(request.holds, "--holds")
    StateSearch(
        stepper, request.calls, holds, bounds, raises=request.raises, backwards=True, record=digests.record
    ).run()
    return digests


def main() -> NoReturn:
    """The other process: one request, its digests, then an outcome for each key of sixteen bytes."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    request = _read_request(asked)
    try:
        factory = load(request.place, object, "factory")
        stepper = ModelStepper(
            factory,  # type: ignore[arg-type]
            request.place,
            allow=request.allow,
            ports=request.ports,
            key=request.key,
            automatic=request.automatic,
        )
        digests = _searched(stepper, request)
    except ConfigurationError as error:
        _answer(answers, error)
        sys.exit(1)
    _answer(answers, digests.made)
    while len(key := asked.read(16)) == 16:
        value, action = digests.where[key]
        with stepper.install():
            _answer(answers, summarize(stepper.step(value, action)))
    sys.exit(0)


def summarize(outcome: StepOutcome) -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """What two processes compare of a step that came out differently."""
    said = outcome.error or f"{outcome.kind} {[row[0] for row in outcome.rows]} {[str(one) for one in outcome.effects]}"
    return said, outcome.value.parts


def _read_request(asked: IO[bytes]) -> SearchRequest:
    size = int.from_bytes(asked.read(8), "big")
    request: SearchRequest = pickle.loads(asked.read(size))
    return request


def _answer(answers: IO[bytes], value: Any) -> None:
    pickle.dump(value, answers)
    answers.flush()

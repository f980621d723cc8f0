"""Model factory: calls somebody's factory within the sandbox, and says in one line what is wrong with it."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final

from transitions import Machine

from statemachines.adoption.canonical_value import own_attributes
from statemachines.adoption.live_machine import AdoptedSubject, read_subject
from statemachines.adoption.port_recorder import PortCall, PortRecorder
from statemachines.adoption.sandbox import BlockedCall, Sandbox
from statemachines.kernel import ConfigurationError

Factory = Callable[[], Any]


class NotRepeatable(ConfigurationError):
    """A step did not come out the same twice, or reached what it must not: nothing can be said of this machine."""


class ModelFactory:
    """Makes subjects.  `place`: how the factory is named in messages; `ports`: attributes that recorders stand for,
    with what their methods return; `calls`: where those write what was called."""

    def __init__(
        self,
        factory: Factory,
        place: str,
        sandbox: Sandbox,
        ports: Mapping[str, Mapping[str, Any] | None],
        calls: list[PortCall],
    ) -> None:
        self.factory = factory
        self.place = place
        self.ports = ports
        self.made_model = False
        """The factory returns one model, and neither a machine nor several."""
        self._sandbox = sandbox
        self._calls = calls
        self._first: AdoptedSubject | None = None

    def begin(self) -> tuple[AdoptedSubject, AdoptedSubject]:
        """Two subjects, which are apart, without recorders."""
        first, second = self.make_raw(), self.make_raw()
        self._check_apart(first, second)
        self._first = first
        return first, second

    def enclose(self) -> AbstractContextManager[None]:
        """The sandbox, and nobody hears what is printed; nothing more inside of it."""
        return _INSIDE if self._sandbox.is_entered() else self._close()

    @contextmanager
    def _close(self) -> Iterator[None]:
        with self._sandbox.enclose(), contextlib.redirect_stdout(_NOWHERE), contextlib.redirect_stderr(_NOWHERE):
            yield

    def make_raw(self) -> AdoptedSubject:
        """What the factory makes, ports as they are; raises `ConfigurationError` where it fails."""
        try:
            with self.enclose():
                made = self.factory()
        except BlockedCall as blocked:
            raise self.describe_blocked(blocked, "the factory") from blocked
        except ConfigurationError:
            raise
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise self._needs_arguments(error) from error
            raise self._failed(error) from error
        except Exception as error:
            raise self._failed(error) from error
        if inspect.isawaitable(made):
            if inspect.iscoroutine(made):
                made.close()
            raise ConfigurationError("factory", self.place, "is a coroutine function; give one that is called plainly")
        if self._sandbox.reached:
            raise self.describe_blocked(self._sandbox.reached[0], "the factory")
        self.made_model = not isinstance(made, Machine | tuple | list)
        return self._find_subject(made)

    def _find_subject(self, made: Any) -> AdoptedSubject:
        """The subject in what the factory made: soon found where it is one model on one machine, as the first was."""
        first = self._first
        if first is not None and self.made_model and len(first.models) == len(first.machines) == 1:
            bound = getattr(made, "__dict__", {}).get("trigger")
            machine: Any = getattr(bound.func, "__self__", None) if isinstance(bound, partial) else None
            if type(machine) is type(first.machines[0]) and machine.models and machine.models[0] is made:
                return AdoptedSubject([made], [machine])
        return read_subject(made)

    def make(self) -> AdoptedSubject:
        """A fresh subject."""
        subject = self.make_raw()
        self.plug_ports(subject)
        return subject

    def _needs_arguments(self, error: TypeError) -> ConfigurationError:
        rule = f"must be callable without arguments ({error}); wrap it: def make(): return FACTORY(...)"
        return ConfigurationError("factory", self.place, rule)

    def _failed(self, error: Exception) -> ConfigurationError:
        frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
        where = f", line {frames[-1].lineno} of {frames[-1].filename.rpartition('/')[2]}" if frames else ""
        rule = f"raised {type(error).__name__}: {error}{where}; it must make a machine each time it is called"
        return ConfigurationError("factory", self.place, rule)

    def plug_ports(self, subject: AdoptedSubject) -> None:
        """Put recorders in the place of attributes."""
        for owner in subject.owners if self.ports else ():
            for name in dict(own_attributes(owner)):
                if name in self.ports:
                    recorder = PortRecorder(name, self._calls, self.ports[name], getattr(owner, name))
                    object.__setattr__(owner, name, recorder)

    def _check_apart(self, first: AdoptedSubject, second: AdoptedSubject) -> None:
        known = {id(one) for one in (*first.owners, *first.machines)}
        for one in (*second.owners, *second.machines):
            if id(one) in known:
                rule = f"returned the same {type(one).__name__} twice; it must make a new one each time it is called"
                raise ConfigurationError("factory", self.place, rule)

    def describe_blocked(self, blocked: BlockedCall, where: str) -> NotRepeatable:
        """The error for something that reached for what is blocked."""
        mend = f"replace what it uses by a recorder (--port NAME), or allow it (--allow {blocked.kind})"
        if where == "the factory":
            mend = f"allow it (--allow {blocked.kind}), and replace the attribute that has it (--port NAME)"
        rule = (
            f"{where} calls {blocked.what} in {blocked.where}, which is blocked, since it would be called thousands "
            f"of times; {mend}"
        )
        return NotRepeatable("machine", self.place, rule)


class _Nowhere(io.TextIOBase):
    """Where callbacks print."""

    def write(self, text: str) -> int:
        return len(text)


_NOWHERE: Final = _Nowhere()
_INSIDE: Final = nullcontext()

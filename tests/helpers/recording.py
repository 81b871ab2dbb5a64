"""A recording of the inputs and outputs of one endpoint, and its replay without an engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seqcast.core.context import EndpointSettings
from seqcast.core.endpoint import Endpoint
from seqcast.core.vocabulary import Effect, Input
from seqcast.types import Member

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
POLICIES = ("membership_policy", "sequencer_policy")
"""Settings that are functions of the application: their answers come from outside, too."""


def _with_policies(settings: EndpointSettings, policy: Callable[[str], Callable[..., Any]]) -> EndpointSettings:
    given = [name for name in POLICIES if getattr(settings, name) is not None]
    return replace(settings, **{name: policy(name) for name in given})


@dataclass
class Tape:
    """One endpoint's steps, and the answers of the engine and the application's policies meanwhile."""

    me: Member
    cluster: str
    settings: EndpointSettings
    steps: list[tuple[tuple[Input, ...], int, list[Effect]]] = field(default_factory=list)
    calls: list[tuple[Call, Any]] = field(default_factory=list)

    def listen(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its calls recorded."""

        def call(*args: Any, **kwargs: Any) -> Any:
            # Copies: the caller may change arguments and results later.
            asked = name, tuple(map(_still, args)), {key: _still(value) for key, value in kwargs.items()}
            try:
                answer = function(*args, **kwargs)
            except Exception as error:  # of a policy
                self.calls.append((asked, error))
                raise
            self.calls.append((asked, list(answer) if type(answer) is list else answer))
            return answer

        return call


def _still(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value


class Recorder(Endpoint):
    """An endpoint that records its tape."""

    def __init__(self, engine: Any, me: Member, cluster: str, settings: EndpointSettings) -> None:
        self.tape = Tape(me, cluster, settings)
        settings = _with_policies(settings, lambda name: self.tape.listen(name, getattr(self.tape.settings, name)))
        super().__init__(_Listened(engine, self.tape), me, cluster, settings)

    def step(self, inputs: Sequence[Input], now_ns: int) -> list[Effect]:
        taken = tuple(inputs)
        effects = super().step(taken, now_ns)
        self.tape.steps.append((taken, now_ns, list(effects)))
        return effects


class _Listened:
    """An engine whose answers are recorded."""

    def __init__(self, engine: Any, tape: Tape) -> None:
        self._engine, self._tape = engine, tape

    def __getattr__(self, name: str) -> Any:
        return self._tape.listen(name, getattr(self._engine, name))


class _Answers:
    """Repeats an engine's answers, and accepts only the same calls in the same order."""

    def __init__(self, tape: Tape) -> None:
        self.calls = deque(tape.calls)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.answer(name, *args, **kwargs)

    def answer(self, name: str, *args: Any, **kwargs: Any) -> Any:
        asked = name, tuple(map(_still, args)), {key: _still(value) for key, value in kwargs.items()}
        assert self.calls, f"{name} is asked, and nothing was"
        call, answer = self.calls.popleft()
        assert asked == call, f"{asked} is asked, and it was {call}"
        if isinstance(answer, Exception):
            raise answer
        return list(answer) if type(answer) is list else answer


def replay(tape: Tape) -> None:
    """Gives the inputs of a tape to a new endpoint.

    Raises:
        AssertionError: another effect comes.
    """
    answers = _Answers(tape)
    settings = _with_policies(tape.settings, lambda name: getattr(answers, name))
    endpoint = Endpoint(answers, tape.me, tape.cluster, settings)
    for number, (inputs, now_ns, effects) in enumerate(tape.steps):
        assert endpoint.step(inputs, now_ns) == effects, f"step {number} of {tape.me} at {now_ns}"
    assert not answers.calls, f"{answers.calls[0]} is not asked"

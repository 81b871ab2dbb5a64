"""Stands in for a Spark session in tests about verdicts, not about Spark: tasks run in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any


class Tasks:
    """The result of ``parallelize`` and its transformations. Tasks and results are pickled, as on their way to workers
    and back."""

    def __init__(self, results: Iterable[Any]) -> None:
        self._results = [pickle.loads(pickle.dumps(result)) for result in results]

    def map(self, function: Callable[[Any], Any]) -> Tasks:
        return Tasks(map(pickle.loads(pickle.dumps(function)), self._results))

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> Tasks:
        return Tasks(chain.from_iterable(map(function, self._results)))

    def groupByKey(self, slices: int) -> Tasks:
        groups: dict[Any, list[Any]] = {}
        for key, value in self._results:
            groups.setdefault(key, []).append(value)
        return Tasks(groups.items())

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterable[Any]]) -> Tasks:
        """Each element is a partition."""
        return Tasks(chain.from_iterable(function([each]) for each in self._results))

    def collect(self) -> list[Any]:
        return self._results


class Here:
    """As much of a session as an audit uses."""

    defaultParallelism = 2

    @property
    def sparkContext(self) -> Here:
        return self

    def parallelize(self, tasks: list[Any], slices: int) -> Tasks:
        assert 1 <= slices <= len(tasks)
        return Tasks(tasks)

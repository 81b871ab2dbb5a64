"""Single rows of journals, looked up where the summaries of segments leave a question.

Tasks read the segments that, by their summaries, can hold wanted rows, and keep those rows. Their number is bounded,
so neither the tasks nor the driver hold more than a few buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from seqcast._native.columns import Scan
from seqcast.journal.reader import Journal
from seqcast.journal.schema import JournalError
from seqcast.journal.segments import Segment
from seqcast.spark import worker
from seqcast.spark.segments import FIFO_SHIFT, ORDERED_SHIFT, SCANNED, Run, Summary, run_batches, scan_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 512 << 20
"""About how much one task reads if there are many segments."""
EVERYTHING = 1 << 62
"""As the last position of a part: to the end of the bucket."""

Content = tuple[int, int]
"""Hash and length of a payload."""
Tuples = frozenset[tuple[int, ...]]
Values = npt.NDArray[Any]
T = TypeVar("T")
Columns = dict[str, Values]
_ROW = ("view_tag", "idx", "global_seqno", "sender", "seqno", "index", "payload_hash", "length")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member delivered a message."""

    tag: int
    idx: int
    global_seqno: int
    sender: int
    key: int


class Lookup:
    """Looks up rows of summarized journals.

    Args:
        summaries: (journal, summary) of each run of segments.

    Raises:
        JournalError: from each method, if a segment can no longer be read.
    """

    def __init__(
        self, spark: SparkSession, journals: Sequence[Journal], summaries: Sequence[tuple[int, Summary]]
    ) -> None:
        self._spark = spark
        self._runs = [(number, _run_of(journals[number], summary), summary) for number, summary in summaries]

    def of_runs(self, tasks: Iterable[tuple[int, int, T]]) -> Iterator[tuple[int, Run, T]]:
        """(journal, number of a run's first segment, anything) with the run itself."""
        runs = {(number, summary.number): run for number, run, summary in self._runs}
        return ((number, runs[number, first], given) for number, first, given in tasks)

    def bucket_rows(self, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], list[tuple[Place, Content]]]:
        """The rows of the given (journal, view tag, bucket), as (journal, tag) -> [(place, content)], in order."""
        found: dict[tuple[int, int], list[tuple[Place, Content]]] = defaultdict(list)
        for number, row in self._each(
            _in_buckets, wanted, lambda summary: {(tag, bucket) for tag, _, bucket in summary.groups}
        ):
            found[number, row[0]].append((_place(row), (row[6], row[7])))
        for places in found.values():
            places.sort(key=lambda pair: pair[0].idx)
        return found

    def find_messages(self, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], list[Place]]:
        """Where journals have the messages with the given (journal, sender, key); those not found are left out."""
        found = defaultdict(list)
        given = ((number, sender, key) for number, sender, key in wanted)
        for number, row in self._each(
            _messages, given, lambda summary: {(run.sender,) for run in summary.senders}, parts=1
        ):
            place = _place(row)
            found[number, place.sender, place.key].append(place)
        return found

    def find_positions(self, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], list[Place]]:
        """Where journals have the given (journal, view tag, global seqno); those not found are left out."""
        found = defaultdict(list)
        for number, row in self._each(
            _positions, wanted, lambda summary: {(run.tag,) for run in summary.views}, parts=1
        ):
            found[number, row[0], row[2]].append(_place(row))
        return found

    def parts(self, wanted: Iterable[tuple[int, int, int, int, int, int]]) -> dict[tuple[int, ...], tuple[int, int]]:
        """Fingerprints of parts of buckets.

        Args:
            wanted: (journal, view tag, sender, bucket, first, last). Positions inside the bucket are global seqnos, or
                without total order ``inside`` of keys; ``EVERYTHING`` as last: to the end.

        Returns:
            The same tuples -> (rows, fingerprint) of the part; parts without rows are left out.
        """
        found: dict[tuple[int, ...], tuple[int, int]] = {}
        for number, (part, rows, total) in self._each(_parts, wanted, lambda summary: set(summary.groups), parts=3):
            before = found.get((number, *part), (0, 0))
            found[number, *part] = before[0] + rows, before[1] + total & (1 << 64) - 1
        return found

    def _each(
        self,
        look: Callable[[Run, Tuples], list[Any]],
        wanted: Iterable[tuple[int, ...]],
        holds: Callable[[Summary], set[tuple[int, ...]]],
        parts: int = 2,
    ) -> Iterator[tuple[int, Any]]:
        """(journal, finding) of ``look`` in the segments that can have wanted rows.

        Args:
            wanted: tuples that begin with the journal; ``look`` gets the rest of each.
            holds: the contents of a segment, by the first ``parts`` numbers of that rest.
        """
        by_journal: dict[int, dict[tuple[int, ...], set[tuple[int, ...]]]] = defaultdict(lambda: defaultdict(set))
        for number, *rest in wanted:
            by_journal[number][tuple(rest[:parts])].add(tuple(rest))
        tasks: list[Task] = []
        for number, run, summary in self._runs:
            if (own := by_journal.get(number)) is not None:
                if few := frozenset(each for key in holds(summary) & own.keys() for each in own[key]):
                    tasks.append((number, run, look, (few,)))
        for number, found in run_tasks(self._spark, tasks):
            for each in found:
                yield number, each


Task = tuple[int, Run, Callable[..., Any], tuple[Any, ...]]
"""(journal, segments, function to call with them, its further arguments)."""


def runs_of(spark: SparkSession, journals: Sequence[Journal]) -> list[tuple[int, Run]]:
    """(journal, run) of all segments. A small segment is in one run with those beside it, so that the results of a
    task, and the driver's work with them, do not grow with the number of segments."""
    bound = sum(segment.size for journal in journals for segment in journal.segments) // _few(spark)
    runs: list[tuple[int, Run]] = []
    for number, journal in enumerate(journals):
        run: list[Segment] = []
        size = 0
        behind = {gap.end for gap in journal.gaps}
        for segment in journal.segments:
            if run and segment.first_idx in behind:  # summaries are stitched at gaps
                runs.append((number, tuple(run)))
                run, size = [], 0
            if run and size + segment.size > min(bound, TASK_BYTES):
                runs.append((number, tuple(run)))
                run, size = [], 0
            run.append(segment)
            size += segment.size
        if run:
            runs.append((number, tuple(run)))
    return runs


def run_tasks(spark: SparkSession, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
    """(journal, result) of each; if there are many, several in one task of Spark.

    Raises:
        JournalError: a segment cannot be read.
    """
    if not tasks:
        return
    slices = slices_of(spark, [run for _, run, _, _ in tasks])
    for number, error, found in spark.sparkContext.parallelize(tasks, slices).map(_run).collect():
        if error:
            raise JournalError(error)
        yield number, found


def _run_of(journal: Journal, summary: Summary) -> Run:
    """The segments of a summary."""
    numbers = [segment.number for segment in journal.segments]
    first, last = bisect_left(numbers, summary.number), bisect_left(numbers, summary.last)
    return journal.segments[first : last + 1]


def slices_of(spark: SparkSession, runs: Sequence[Run]) -> int:
    """Into how many tasks of Spark the reading of the runs is divided."""
    size = sum(segment.size for run in runs for segment in run)
    return max(1, min(len(runs), max(_few(spark), size // TASK_BYTES)))


def _few(spark: SparkSession) -> int:
    """As many tasks as keep all processors busy: a few for each."""
    return int(4 * spark.sparkContext.defaultParallelism)


def inside(key: int) -> int:
    """A key without the bits of its bucket."""
    return key & ((1 << FIFO_SHIFT) - 1)


# ---- in a task


def _run(task: Task) -> tuple[int, str, Any]:
    worker.settle()
    number, run, look, given = task
    try:
        return number, "", look(run, *given)
    except JournalError as error:  # as text: Spark would bury it in the traceback of a task
        return number, str(error), None


def _in_buckets(run: Run, wanted: Tuples) -> list[tuple[int, ...]]:
    return _rows(run, lambda of: (of["view_tag"], _buckets(of)), wanted)


def _messages(run: Run, wanted: Tuples) -> list[tuple[int, ...]]:
    apart = [(sender, key >> 16, key & 0xFFFF) for sender, key in wanted]  # a key may have more than 64 bits
    return _rows(run, lambda of: (of["sender"], of["seqno"], of["index"]), apart)


def _positions(run: Run, wanted: Tuples) -> list[tuple[int, ...]]:
    return _rows(run, lambda of: (of["view_tag"], of["global_seqno"]), wanted)


def _parts(run: Run, wanted: Tuples) -> list[tuple[tuple[int, ...], int, int]]:
    scans = {part: Scan() for part in wanted}
    groups = sorted({part[:3] for part in wanted})
    spans = [sorted(part for part in wanted if part[:3] == group) for group in groups]
    for batch in run_batches(run, SCANNED):
        of = scan_columns(batch)
        rows, which = matches((of["view_tag"], of["sender"], _buckets(of)), groups)
        by_group = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[by_group], np.arange(len(groups) + 1))
        seqnos = of["global_seqno"]
        places = np.where(seqnos > 0, seqnos, (of["seqno"] << 16 | of["index"]) & (1 << FIFO_SHIFT) - 1)
        for group in np.flatnonzero(np.diff(ends)).tolist():
            at = rows[by_group[ends[group] : ends[group + 1]]]
            for part in spans[group]:
                kept = at[(places[at] >= part[3]) & (places[at] <= part[4])]
                scans[part].add(**{name: values[kept] for name, values in of.items()})
    return [
        (part, sum(group[0] for _, group in scan.groups()), sum(group[4] for _, group in scan.groups()))
        for part, scan in scans.items()
        if scan.rows
    ]


def _buckets(of: Columns) -> npt.NDArray[np.int64]:
    seqnos = of["global_seqno"]
    return np.where(seqnos > 0, seqnos >> ORDERED_SHIFT, of["seqno"] >> (FIFO_SHIFT - 16))


def _rows(
    run: Run, columns: Callable[[Columns], Sequence[Values]], wanted: Iterable[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    tuples = sorted(wanted)
    found: list[tuple[int, ...]] = []
    for batch in run_batches(run, SCANNED):
        of = scan_columns(batch)
        at, _ = matches(columns(of), tuples)
        found += zip(*(of[name][at].tolist() for name in _ROW), strict=True)
    return found


def matches(columns: Sequence[Values], wanted: Sequence[tuple[int, ...]]) -> tuple[Values, Values]:
    """The rows that have, in the given columns, one of the wanted tuples: their numbers, ascending, and the place of
    each one's tuple in ``wanted``. Searches once per row, so the cost is not rows times tuples.

    Args:
        wanted: distinct tuples, at least one, with one value per column.
    """
    rows = np.arange(len(columns[0]))
    codes, wanted_codes = np.zeros(len(rows), np.int64), np.zeros(len(wanted), np.int64)
    for column, values in zip(columns, zip(*wanted, strict=True), strict=True):
        known, places = np.unique(np.array(values, np.int64), return_inverse=True)
        kept, found = _find(column[rows], known)
        rows, codes = rows[kept], codes[kept] * len(known) + found
        # A number for each combination of values so far, as few as there are tuples.
        combined, wanted_codes = np.unique(wanted_codes * len(known) + places, return_inverse=True)
        kept, codes = _find(codes, combined)
        rows = rows[kept]
    return rows, np.argsort(wanted_codes)[codes]


def _find(values: Values, known: Values) -> tuple[Values, Values]:
    """Which of the values are among the known ones, which are sorted, and at which places."""
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    kept = np.flatnonzero(known[places] == values)
    return kept, places[kept]


def _place(row: Sequence[int]) -> Place:
    return Place(row[0], row[1], row[2], row[3], row[4] << 16 | row[5])

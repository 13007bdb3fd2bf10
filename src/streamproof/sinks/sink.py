"""What a sink is: one kind of output, made before a run, read while the job runs, drained to its end, and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.locations import Found
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.testbed.embedded import Testbed

Row = tuple[Any, ...]


class Reader(Protocol):
    """Reads the output while the job writes it."""

    def visible(self) -> dict[int, int]:
        """How many records of each batch are visible by now. Asked again and again."""

    def close(self) -> None: ...


class Follower(Protocol):
    """Says which records are in the output, while the job writes it."""

    def identities(self) -> Iterable[Found]:
        """Of the records that became visible since the last call; those of before may be among them. Raises EvidenceError while there is no
        output yet, TestbedError while its server does not answer."""

    def close(self) -> None: ...


@runtime_checkable
class Followed(Protocol):
    """What a sink can do whose records keep their identity where the job says."""

    def follower(self, job: Job, testbed: Testbed) -> Follower: ...


class Implementation(Protocol):
    """What is done with one kind of output."""

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        """Make the job's output, empty. ``partitions`` is how many the input has."""

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        """Read everything that was delivered into ``delivered/``; write and return ``delivered/drain.json``. May be repeated."""

    def end(self, job: Job, testbed: Testbed) -> Any:
        """Where the output ends now, as JSON has it: the same as long as nobody writes, and what the drain wrote as ``end`` when nobody
        did since. Raises EvidenceError when there is no output."""

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        """Where each partition of the output ends, by the client that ``rows`` reads with, not by what the drain asks. Raises
        EvidenceError."""

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        """The records of these stretches, read by other code than the drain's, with keys and values: the columns of ``payloads/``. Raises
        EvidenceError."""

    def reader(self, job: Job, testbed: Testbed) -> Reader:
        """A reader that sees what any reader of this output sees."""

    def load(self) -> None:
        """Import what the drain needs, while there is time: compiled code takes a second. May be repeated."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        """Delete the job's output, if there is any. May be repeated."""


class Sink(Implementation, Protocol):
    """One kind of output, as it is registered. Importing its module imports neither Arrow nor a client."""

    name: str
    links: frozenset[str]
    """The servers that a job needs to deliver there."""
    keeps_versions: bool
    """Whether each state of the output is a version that can be read later."""

    def follower(self, job: Job, testbed: Testbed) -> Follower:
        """Follows which records are delivered. Raises TypeError for a sink that no job of a user's own delivers to."""


class Deferred:
    """A sink whose implementation, ``module:Class``, is imported when it is first used: forms and DAG files name sinks and use none."""

    def __init__(self, name: str, links: frozenset[str], implementation: str, keeps_versions: bool = False) -> None:
        self.name, self.links, self._implementation, self.keeps_versions = name, links, implementation, keeps_versions

    @cached_property
    def _sink(self) -> Implementation:
        module, _, name = self._implementation.partition(":")
        sink: Implementation = getattr(import_module(module), name)()
        return sink

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        self._sink.create(job, testbed, partitions)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        return self._sink.drain(folder, job, testbed, timeout_s)

    def end(self, job: Job, testbed: Testbed) -> Any:
        return self._sink.end(job, testbed)

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        return self._sink.ends_again(job, testbed, timeout_s)

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        return self._sink.rows(job, testbed, run, stretches, timeout_s)

    def reader(self, job: Job, testbed: Testbed) -> Reader:
        return self._sink.reader(job, testbed)

    def follower(self, job: Job, testbed: Testbed) -> Follower:
        if not isinstance(self._sink, Followed):
            raise TypeError(f"the sink {self.name} is not followed: no job of a user's own delivers there")
        return self._sink.follower(job, testbed)

    def load(self) -> None:
        self._sink.load()

    def delete(self, job: Job, testbed: Testbed) -> None:
        self._sink.delete(job, testbed)

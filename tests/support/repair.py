"""What is wrong with the testbed that the tests share, and how it is put right.

Right is a testbed of which every process runs and none is paused, every component answers, every proxy is enabled and has no toxic; and,
of three brokers, one whose partitions are all in sync. While a run holds the testbed, it is the run's: whatever is broken may have to be.
"""

from __future__ import annotations

import contextlib
import functools
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from streamproof.run import lock
from streamproof.testbed import embedded, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError, remembered, wait_until

HTTP_S = 5.0
SETTLED_S = 10.0
REPAIRED_S = 60.0
POLL_S = 0.2


@dataclass(frozen=True)
class Before:
    """What a test has to leave as it was: how many brokers Kafka has, None where it may have another number; and Spark's processes, which
    need not be the same, but then have to know of each other."""

    brokers: int | None
    spark: tuple[int | None, ...]

    @classmethod
    def look(cls, *, brokers_may_change: bool = False) -> Before:
        testbed = embedded.started()
        return cls(None if brokers_may_change or testbed is None else len(testbed.kafka), _spark())


def _spark() -> tuple[int | None, ...]:
    handles = [remembered(role, embedded.folder()) for role in embedded.OTHER_ROLES if role.startswith("spark")]
    return tuple(handle and handle.pid for handle in handles)


def damage(before: Before, settled_s: float = SETTLED_S) -> list[str]:
    """What is wrong with the testbed, one line for each. What may be right in a moment has ``settled_s`` for it."""
    testbed, holder = embedded.started(), lock.holder()
    if testbed is None or (holder is not None and not lock.is_stale(holder)):
        return []
    if wrong := _lasting(testbed, before):
        return wrong
    with contextlib.suppress(TestbedError):
        wait_until("the testbed to settle", lambda: not _passing(testbed, before), settled_s, poll_s=POLL_S)
        return []
    return _passing(testbed, before)


def _lasting(testbed: Testbed, before: Before) -> list[str]:
    """What does not become right by itself."""
    handles = {role: remembered(role, embedded.folder()) for role in testbed.roles}
    wrong = [f"{role} is down" for role, handle in handles.items() if handle is None or not handle.alive]
    wrong += [f"{role} is paused" for role in _paused(testbed)]
    if before.brokers not in (None, len(testbed.kafka)):
        wrong.append(f"kafka has {len(testbed.kafka)} brokers, it had {before.brokers}")
    if "toxiproxy is down" not in wrong and "toxiproxy is paused" not in wrong:
        wrong += _damaged_proxies(testbed)
    return wrong


def _passing(testbed: Testbed, before: Before) -> list[str]:
    """What is wrong for a moment when a component was started again, or on a busy machine."""
    wrong = [f"{role} {state}" for role, state in embedded.status().items() if state != "up"]
    if not wrong and _spark() != before.spark and not spark.registered(testbed.spark):
        wrong.append("spark-master does not list its workers as ALIVE")
    if not wrong and len(testbed.kafka) > 1:
        try:
            wrong += [f"{partition} is out of sync" for partition in _cluster(testbed.direct_kafka).out_of_sync()]
        except TestbedError as error:
            wrong.append(str(error))
    return wrong


@functools.cache
def _cluster(bootstrap: str) -> Cluster:
    return Cluster(bootstrap)


def _damaged_proxies(testbed: Testbed) -> Iterator[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{testbed.toxiproxy_port}/proxies", timeout=HTTP_S) as answer:
        proxies = json.load(answer)
    for name in testbed.links:
        if name not in proxies:
            yield f"toxiproxy has no proxy {name}"
            continue
        if not proxies[name]["enabled"]:
            yield f"proxy {name} is disabled"
        for toxic in proxies[name]["toxics"]:
            yield f"proxy {name} has toxic {toxic['name']} ({toxic['type']})"


def _paused(testbed: Testbed) -> dict[str, psutil.Process]:
    """The processes that stand still by SIGSTOP, by their role."""
    handles = {role: remembered(role, embedded.folder()) for role in testbed.roles}
    processes = {role: handle.process() for role, handle in handles.items() if handle is not None}
    return {role: process for role, process in processes.items() if process and process.status() == psutil.STATUS_STOPPED}


def repair(before: Before) -> None:
    """Put the testbed right; what cannot be put right is built anew. Raises TestbedError when that does not help either."""
    try:
        _mend(before)
        left = damage(before, REPAIRED_S)
    except TestbedError as error:
        left = [str(error)]
    if left:
        embedded.rebuild()
        embedded.up(brokers=before.brokers)
        left = damage(before, REPAIRED_S)
    if left:
        raise TestbedError(f"the testbed cannot be put right: {'; '.join(left)}")


def _mend(before: Before) -> None:
    testbed = embedded.started()
    assert testbed is not None
    for process in _paused(testbed).values():
        for each in [process, *process.children(recursive=True)]:
            each.resume()
    if embedded.status()["toxiproxy"] != "down":
        for name in testbed.links:
            with contextlib.suppress(TestbedError):  # there is no such proxy: `up` makes it
                testbed.proxies.reset(name)
    embedded.up(brokers=before.brokers)

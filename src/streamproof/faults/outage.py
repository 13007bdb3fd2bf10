"""Outages: something that the job needs answers nobody for a while. A server is killed or paused, or the link to it is cut.

Each fault, a file of its own, names its target; the moments are the same for all. What healing needs is journaled before anything is
broken: the pid of a server, so that whoever heals after a dead runner knows whom to wake; the name of a proxy.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import struct
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import psutil
from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverExited
from streamproof.faults.fault import STALL, EvidenceCheck, FaultError, Ordinary, Parameters, RunContext
from streamproof.faults.network import kafka_link
from streamproof.faults.network.kafka_link import OfRole, present
from streamproof.jobs.profile import JobProfile
from streamproof.testbed import embedded, hosts
from streamproof.testbed.embedded import POSTGRES_PROXY, POSTGRES_SERVER, Testbed, Way
from streamproof.testbed.process import TestbedError, process_record, remembered, same_process
from streamproof.testbed.toxiproxy import kafka_round_trip_ms

EVIDENCE_S = 60.0
PROBE_S = 1.0
PROBES = 10
"""At least so many have no answer."""
LONGEST_S = 12.0
"""How long an outage lasts of which the job takes no notice. Kafka's clients go on trying for minutes."""


class OutageParameters(Parameters):
    seconds: float | None = Field(
        None,
        ge=0.5,
        le=120.0,
        description="How long the fault lasts, in s. Until the job has noticed when absent: a start of it ended; 12 s at most",
    )


class Outage(Ordinary):
    """``what`` is the target, in words."""

    what: str
    least_brokers = 1
    name: str
    summary: str
    target: str
    parameters_model: type[Parameters] = OutageParameters

    def batches(self, parameters: Any) -> int:
        return 4

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {"seconds": round(rng.uniform(1.0, 4.0), 1)}

    def outside(self, parameters: Any) -> frozenset[Way] | None:
        """Nothing of a server, unless it says so."""
        return frozenset()

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        raise NotImplementedError

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        if run.held is None:  # a process that is held at a step of the protocol is at work
            before = run.progress.batches()
            run.wait_for("the job to be at work", lambda: run.progress.batches() > before, EVIDENCE_S)
        target["ended"] = _last_end(run)
        self.take_down(run.testbed, target)

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        raise NotImplementedError

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        """That what was done reads back."""
        raise NotImplementedError

    def answers(self, testbed: Testbed, target: dict[str, Any]) -> list[bool]:
        """For each target, whether a probe gets an answer."""
        raise NotImplementedError

    def beside(self, testbed: Testbed, target: dict[str, Any]) -> bool:
        """Whether what must not be broken answers. True where there is no such thing."""
        return True

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        raise NotImplementedError

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        effects = self.took_effect(run, target)
        answered = probed = missed = 0
        begun, noticed, before = time.monotonic(), _noticed(run, target), run.progress.batches()
        until = begun + (LONGEST_S if parameters.seconds is None else parameters.seconds)
        while time.monotonic() < until and (noticed is None or probed < PROBES or parameters.seconds is not None):
            run.check_alive()
            answered += sum(self.answers(run.testbed, target))
            missed += not self.beside(run.testbed, target)
            probed += 1
            noticed = noticed or _noticed(run, target)
            time.sleep(0.05)
        lasted = f"{time.monotonic() - begun:.0f} s" if parameters.seconds is None else f"{parameters.seconds:g} s"
        heard = f"{answered} answers to a probe; {noticed or 'no start of the job ended'}"
        silent = EvidenceCheck(f"{self.what} answered nobody for {lasted}", answered == 0, heard)
        # The batch that was at its last step may still have ended; from then on nothing can be committed.
        during = run.progress.batches() - before
        stalled = EvidenceCheck("the job made no progress meanwhile", during <= 1, f"{during} micro-batches were committed")
        run.over.set()
        healed = self.heal(run.testbed, run.folder, target)
        committed = run.progress.batches()
        on = run.eventually(lambda: run.progress.batches() > committed, EVIDENCE_S)
        after = EvidenceCheck(f"the job committed a batch once {self.what} was back", on, f"{run.progress.batches() - committed} so far")
        return [*effects, silent, *self.apart(target, probed, missed), stalled, *healed, after]

    def apart(self, target: dict[str, Any], probed: int, missed: int) -> list[EvidenceCheck]:
        """That what must not be broken was not, where there is such a thing: of ``probed`` probes ``missed`` had no answer."""
        return []

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        self.undo(testbed, target)
        deadline = time.monotonic() + EVIDENCE_S
        while not (back := all(self.answers(testbed, target))) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [EvidenceCheck(f"{self.what} answers", back, "a probe got its answer" if back else f"no answer within {EVIDENCE_S:.0f} s")]


def _last_end(run: RunContext) -> int:
    """The number of the last start of the job that has ended; 0 for none."""
    event = run.folder.journal.last(DriverExited)
    return 0 if event is None else event.start


def _noticed(run: RunContext, target: dict[str, Any]) -> str | None:
    """Which start has ended since the outage began."""
    last = _last_end(run)
    return f"start {last} of the job ended" if last > target["ended"] else None


class ServerOutage(Outage):
    """Strikes the process of the testbed's server ``role``; of Kafka, those of all its brokers."""

    role: str

    @property
    def occupies(self) -> frozenset[str]:
        return frozenset({self.role, f"the link to {self.role}", STALL})

    def outside(self, parameters: Any) -> frozenset[Way] | None:
        return None if self.role == "kafka" else frozenset({POSTGRES_SERVER})

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        servers = run.testbed.brokers if self.role == "kafka" else [self.role]
        return {"role": self.target, "servers": [server_process(server) for server in servers]}

    def answers(self, testbed: Testbed, target: dict[str, Any]) -> list[bool]:
        return server_answers(testbed, self.role)

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [self.showed(run, server) for server in target["servers"]]

    def showed(self, run: RunContext, server: dict[str, Any]) -> EvidenceCheck:
        """That the process is as it was made to be."""
        raise NotImplementedError

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        """Wake who sleeps, start who is gone."""
        for server in target["servers"]:
            process = same_process(server)
            if process is not None:
                tell([process, *process.children(recursive=True)], signal.SIGCONT)
        embedded.up()


class Killed(ServerOutage):
    """SIGKILL; what the server had not forced to disk is gone. Healing starts it again."""

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        for server in target["servers"]:
            signalled(server, signal.SIGKILL)

    def showed(self, run: RunContext, server: dict[str, Any]) -> EvidenceCheck:
        return gone(run, server)


class Stopped(Killed):
    """The signal by which the server shuts down in good order; what it was told is on its disk. Healing starts it again."""

    by: signal.Signals

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        super().inject(run, parameters, target)
        for server in target["servers"]:
            run.wait_for(f"{server['server']} to shut down", partial(_ended, server), EVIDENCE_S)

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        for server in target["servers"]:
            signalled(server, self.by)


class Paused(ServerOutage):
    """SIGSTOP; connections stay open and nobody answers. Healing is SIGCONT."""

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        for server in target["servers"]:
            tell(signalled(server, signal.SIGSTOP).children(recursive=True), signal.SIGSTOP)

    def showed(self, run: RunContext, server: dict[str, Any]) -> EvidenceCheck:
        def stopped() -> bool:
            process = same_process(server)
            return process is not None and process.status() == psutil.STATUS_STOPPED

        return EvidenceCheck(f"the process of {server['server']} is stopped", run.eventually(stopped, EVIDENCE_S), f"pid {server['pid']}")


def server_answers(testbed: Testbed, role: str) -> list[bool]:
    """Whether each of Kafka's brokers, or PostgreSQL, answers a probe on the way that does not lead through a proxy."""
    if role == "kafka":
        return [answers(role, address) for address in testbed.direct_kafka.split(",")]
    return [answers(role, f"{hosts.of(role)}:{testbed.postgres.direct}")]


def server_process(role: str) -> dict[str, Any]:
    """The process of the testbed's server of that role, for the journal. Raises FaultError when it does not run."""
    handle = remembered(role, embedded.folder())
    process = handle.process() if handle else None
    if handle is None or process is None:
        raise FaultError(f"{role} does not run: there is nothing to break")
    return {"server": role, **process_record(process)}


def _ended(server: dict[str, Any]) -> bool:
    return same_process(server) is None


def signalled(server: dict[str, Any], number: signal.Signals) -> psutil.Process:
    """The process that was aimed at, which now got the signal. Raises FaultError when it is gone."""
    process = same_process(server)
    if process is None:
        raise FaultError(f"{server['server']} ended by itself before the fault was injected")
    process.send_signal(number)
    return process


def tell(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to those of the processes that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def gone(run: RunContext, server: dict[str, Any]) -> EvidenceCheck:
    """That the process of the server is gone."""
    ended = run.eventually(lambda: same_process(server) is None, EVIDENCE_S)
    return EvidenceCheck(f"the process of {server['server']} is gone", ended, f"pid {server['pid']}")


class LinkOutage(Outage):
    """Strikes proxies between the pipeline and a server; ``toxic`` is what is put on each in both directions, None takes it down."""

    server = "postgres"
    toxic: tuple[str, dict[str, int]] | None = None

    @property
    def occupies(self) -> frozenset[str]:
        return frozenset({f"the link to {self.server}", STALL})

    def outside(self, parameters: Any) -> frozenset[Way] | None:
        return frozenset({"postgres"})

    def proxies(self, testbed: Testbed, parameters: Any) -> list[str]:
        """Which proxies are broken."""
        return [POSTGRES_PROXY]

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        target = {"role": self.target, "proxies": self.proxies(run.testbed, parameters)}
        if not all(self.answers(run.testbed, target)):
            raise FaultError(f"{self.what} does not answer before the fault was injected")
        return target

    def answers(self, testbed: Testbed, target: dict[str, Any]) -> list[bool]:
        """On the pipeline's own way."""
        return [answers(self.server, testbed.links[name]) for name in present(testbed, target)]

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        for name in target["proxies"]:
            if self.toxic is None:
                testbed.proxies.disable(name)
                continue
            kind, attributes = self.toxic
            for stream in ("upstream", "downstream"):
                testbed.proxies.add(name, f"streamproof-{kind}-{stream}", kind, stream, attributes)

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [self._reads_back(run.testbed, name) for name in target["proxies"]]

    def _reads_back(self, testbed: Testbed, name: str) -> EvidenceCheck:
        toxics, enabled = testbed.proxies.toxics(name), testbed.proxies.enabled(name)
        there = not enabled if self.toxic is None else len(toxics) == 2
        return EvidenceCheck(
            f"the proxy {name} reads back as it was asked for", there, f"enabled={enabled}, {', '.join(sorted(toxics)) or 'no toxic'}"
        )

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        for name in present(testbed, target):
            testbed.proxies.reset(name)


class KafkaLinkParameters(OutageParameters, OfRole):
    pass


class KafkaLinkOutage(LinkOutage):
    """Strikes the ways of the driver, of the executors, or of both to Kafka."""

    server = "kafka"
    parameters_model = KafkaLinkParameters

    def outside(self, parameters: Any) -> frozenset[Way]:
        return kafka_link.ways(parameters.role)

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        kafka_link.check(self.name, profile, parameters)

    def proxies(self, testbed: Testbed, parameters: Any) -> list[str]:
        return testbed.kafka_proxies(parameters.role)

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        return {**super().aim(run, parameters), "spared": kafka_link.spared(run.testbed, parameters.role)}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        target["connections"] = kafka_link.connections(run, parameters.role)
        super().inject(run, parameters, target)

    def beside(self, testbed: Testbed, target: dict[str, Any]) -> bool:
        return all(answers(self.server, address) for address in target["spared"].values())

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [*kafka_link.checks(target["connections"]), *super().took_effect(run, target)]

    def apart(self, target: dict[str, Any], probed: int, missed: int) -> list[EvidenceCheck]:
        names = ", ".join(target["spared"])
        return (
            [EvidenceCheck(f"each probe through {names} was answered meanwhile", missed == 0, f"{probed - missed} of {probed}")]
            if names
            else []
        )


def answers(server: str, address: str) -> bool:
    """Whether a request to ``kafka`` or ``postgres`` at that address is answered within ``PROBE_S``.

    Kafka is asked for its API versions, PostgreSQL whether it would encrypt: neither needs a login.
    """
    if server == "kafka":
        try:
            kafka_round_trip_ms(address, samples=1, timeout_s=PROBE_S)
        except TestbedError:
            return False
        return True
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PROBE_S) as connection:
            connection.sendall(_SSL_REQUEST)
            return connection.recv(1) in (b"N", b"S")
    except OSError:
        return False


_SSL_REQUEST = struct.pack(">ii", 8, 80877103)

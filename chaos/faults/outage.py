"""Outages: something that the job needs answers nobody for a while. A server is killed or paused, or the link to it is cut.

Each fault, a file of its own, names what is struck; the moments are the same for all. What healing needs is journaled before anything is
struck: the pid of a server, so that whoever heals after a dead runner knows whom to wake; the name of a proxy.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

import psutil
from pydantic import Field

from chaos.faults.fault import Claim, FaultError, Parameters, Scene
from delivery.anomaly import Anomaly
from delivery.folder import RunFolder
from pipelines import strategies
from pipelines.sink import Sink
from testbed import embedded
from testbed.embedded import KAFKA_PROXY, Testbed
from testbed.process import TestbedError, remembered, same_process, told
from testbed.toxiproxy import kafka_round_trip_ms

EVIDENCE_S = 60.0
PROBE_S = 1.0


class OutageParameters(Parameters):
    seconds: float = Field(3.0, ge=0.5, le=120.0, description="How long it stays away before it is healed, in s")


class Outage:
    """``what`` is struck; ``sinks`` are those whose jobs need it, None for every job."""

    what: str
    sinks: frozenset[Sink] | None = None
    name: str
    summary: str
    target: str
    parameters_model: type[Parameters] = OutageParameters

    def batches(self, parameters: Any) -> int:
        return 4

    def check(self, strategy: str, parameters: dict[str, Any]) -> None:
        if self.sinks is not None and strategies.STRATEGIES[strategy].sink not in self.sinks:
            raise ValueError(f"{self.name}: a job with {strategy!r} does not need {self.what}")

    def provokes(self, strategy: str, parameters: dict[str, Any]) -> list[Anomaly]:
        return []

    def aim(self, scene: Scene, parameters: Any) -> dict[str, Any]:
        raise NotImplementedError

    def inject(self, scene: Scene, parameters: Any, target: dict[str, Any]) -> None:
        before = scene.progress.batches()
        scene.wait_for("the job to be at work", lambda: scene.progress.batches() > before, EVIDENCE_S)
        target["batches"] = scene.progress.batches()
        self.strike(scene.testbed, target)

    def strike(self, testbed: Testbed, target: dict[str, Any]) -> None:
        raise NotImplementedError

    def struck(self, scene: Scene, target: dict[str, Any]) -> Claim:
        """That what was done reads back."""
        raise NotImplementedError

    def answers(self, testbed: Testbed) -> bool:
        """Whether a probe gets an answer."""
        raise NotImplementedError

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        raise NotImplementedError

    def evidence(self, scene: Scene, parameters: Any, target: dict[str, Any]) -> list[Claim]:
        struck = self.struck(scene, target)
        answered, until = 0, time.monotonic() + parameters.seconds
        while time.monotonic() < until:
            scene.check_alive()
            answered += self.answers(scene.testbed)
            time.sleep(0.05)
        silent = Claim(f"{self.what} answered nobody for {parameters.seconds:g} s", answered == 0, f"{answered} answers to a probe")
        # The batch that was at its last step may still have ended; from then on nothing can be committed.
        during = scene.progress.batches() - target["batches"]
        stalled = Claim("the job stood still meanwhile", during <= 1, f"{during} micro-batches were committed")
        healed = self.heal(scene.testbed, scene.folder, target)
        committed = scene.progress.batches()
        on = scene.eventually(lambda: scene.progress.batches() > committed, EVIDENCE_S)
        after = Claim(f"the job committed a batch once {self.what} was back", on, f"{scene.progress.batches() - committed} so far")
        return [struck, silent, stalled, *healed, after]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        self.undo(testbed, target)
        deadline = time.monotonic() + EVIDENCE_S
        while not (back := self.answers(testbed)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [Claim(f"{self.what} answers", back, "a probe got its answer" if back else f"no answer within {EVIDENCE_S:.0f} s")]


class ServerOutage(Outage):
    """Strikes the process of the testbed's server ``role``."""

    role: str

    def aim(self, scene: Scene, parameters: Any) -> dict[str, Any]:
        handle = remembered(self.role, embedded.folder())
        process = handle.process() if handle else None
        if handle is None or process is None:
            raise FaultError(f"{self.role} does not run: there is nothing to strike")
        return {"role": self.target, "server": self.role, **told(process)}

    def answers(self, testbed: Testbed) -> bool:
        """On the way that does not lead through the proxy."""
        port = testbed.kafka.direct if self.role == "kafka" else testbed.postgres.direct
        return answers(self.role, port)

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        """Wake who sleeps, start who is gone."""
        process = same_process(target)
        if process is not None:
            tell([process, *process.children(recursive=True)], signal.SIGCONT)
        embedded.up()


class Killed(ServerOutage):
    """SIGKILL; what the server had not forced to disk is gone. Healing starts it again."""

    def strike(self, testbed: Testbed, target: dict[str, Any]) -> None:
        signalled(target, signal.SIGKILL)

    def struck(self, scene: Scene, target: dict[str, Any]) -> Claim:
        gone = scene.eventually(lambda: same_process(target) is None, EVIDENCE_S)
        return Claim(f"the process of {target['server']} is gone", gone, f"pid {target['pid']}")


class Stopped(Killed):
    """The signal by which the server shuts down in good order; what it was told is on its disk. Healing starts it again."""

    by: signal.Signals

    def inject(self, scene: Scene, parameters: Any, target: dict[str, Any]) -> None:
        super().inject(scene, parameters, target)
        scene.wait_for(f"{self.role} to shut down", lambda: same_process(target) is None, EVIDENCE_S)
        target["batches"] = scene.progress.batches()  # while it shut down it still served

    def strike(self, testbed: Testbed, target: dict[str, Any]) -> None:
        signalled(target, self.by)


class Paused(ServerOutage):
    """SIGSTOP; connections stay open and nobody answers. Healing is SIGCONT."""

    def strike(self, testbed: Testbed, target: dict[str, Any]) -> None:
        tell(signalled(target, signal.SIGSTOP).children(recursive=True), signal.SIGSTOP)

    def struck(self, scene: Scene, target: dict[str, Any]) -> Claim:
        def stopped() -> bool:
            process = same_process(target)
            return process is not None and process.status() == psutil.STATUS_STOPPED

        return Claim(f"the process of {target['server']} stands still", scene.eventually(stopped, EVIDENCE_S), f"pid {target['pid']}")


def signalled(target: dict[str, Any], number: signal.Signals) -> psutil.Process:
    """The process that was aimed at, which now got the signal. Raises FaultError when it is gone."""
    process = same_process(target)
    if process is None:
        raise FaultError(f"{target['server']} ended by itself before it was struck")
    process.send_signal(number)
    return process


def tell(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to those of the processes that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


class LinkOutage(Outage):
    """Strikes the proxy between the pipeline and a server; ``toxic`` is what is put on it in both directions, None takes it down."""

    proxy: str
    toxic: tuple[str, dict[str, int]] | None = None

    def aim(self, scene: Scene, parameters: OutageParameters) -> dict[str, Any]:
        if not self.answers(scene.testbed):
            raise FaultError(f"{self.what} does not answer before it was struck")
        return {"role": self.target, "proxy": self.proxy}

    def answers(self, testbed: Testbed) -> bool:
        """On the pipeline's own way."""
        return answers(self.proxy, testbed.kafka.proxy if self.proxy == KAFKA_PROXY else testbed.postgres.proxy)

    def strike(self, testbed: Testbed, target: dict[str, Any]) -> None:
        if self.toxic is None:
            testbed.proxies.disable(self.proxy)
            return
        kind, attributes = self.toxic
        for stream in ("upstream", "downstream"):
            testbed.proxies.add(self.proxy, f"streamproof-{kind}-{stream}", kind, stream, attributes)

    def struck(self, scene: Scene, target: dict[str, Any]) -> Claim:
        toxics, enabled = scene.testbed.proxies.toxics(self.proxy), scene.testbed.proxies.enabled(self.proxy)
        there = not enabled if self.toxic is None else len(toxics) == 2
        return Claim("the proxy reads back as it was asked for", there, f"enabled={enabled}, toxics: {', '.join(sorted(toxics)) or 'none'}")

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        testbed.proxies.reset(self.proxy)


def answers(server: str, port: int) -> bool:
    """Whether a request to ``kafka`` or ``postgres`` on that port of loopback is answered within ``PROBE_S``.

    Kafka is asked for its API versions, PostgreSQL whether it would encrypt: neither needs a login.
    """
    if server == KAFKA_PROXY:
        try:
            kafka_round_trip_ms(f"127.0.0.1:{port}", samples=1, timeout_s=PROBE_S)
        except TestbedError:
            return False
        return True
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PROBE_S) as connection:
            connection.sendall(_SSL_REQUEST)
            return connection.recv(1) in (b"N", b"S")
    except OSError:
        return False


_SSL_REQUEST = struct.pack(">ii", 8, 80877103)

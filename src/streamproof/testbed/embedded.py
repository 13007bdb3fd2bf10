"""The embedded testbed: Kafka, PostgreSQL, Toxiproxy and Spark as processes of this machine, on loopback, warm between runs."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import psutil

from streamproof import extras, settings
from streamproof.evidence.folder import write_atomically
from streamproof.exclusive import exclusive
from streamproof.testbed import hosts, install, kafka, postgres, scratch, spark, stack, toxiproxy
from streamproof.testbed.messages import Messages, Protocol
from streamproof.testbed.postgres import Server
from streamproof.testbed.process import (
    MARK,
    FixedPorts,
    FreePorts,
    Handle,
    Ports,
    TestbedError,
    listening,
    marked,
    remembered,
    stop,
    tail,
    wait_until,
)
from streamproof.testbed.roles import Template

Role = Literal["pipeline", "driver", "executors"]
"""Who of the system under test talks to Kafka. The pipeline is driver and executors."""
POSTGRES_SERVER, SPARK_SERVERS = "PostgreSQL itself", "Spark's master and workers"
Way = str
"""What a fault breaks of servers that may be external: a link to Kafka, ``driver`` or ``executors``, the link to ``postgres``,
:data:`POSTGRES_SERVER`, or :data:`SPARK_SERVERS`."""
START_LOCK_S = 180.0
FORGET_S = 10.0
SETTLED_S = 10.0
POLL_S = 0.2
POSTGRES_PROXY = "postgres"
OTHER_ROLES = ("postgres", "toxiproxy", "spark-master", *(f"spark-{role}" for role in spark.WORKERS))


@dataclass(frozen=True)
class Testbed:
    """Addresses of a running testbed. ``driver_kafka``, ``executors_kafka`` and ``pipeline_postgres`` are what the system under test is
    told: each leads through proxies of its own. Brokers are counted from 1, as Kafka's ids of them."""

    __test__ = False

    folder: str
    kafka: tuple[kafka.KafkaPorts, ...]
    postgres: postgres.PostgresPorts
    toxiproxy_port: int
    spark: spark.SparkPorts

    @property
    def direct_kafka(self) -> str:
        return ",".join(f"{hosts.of(broker)}:{ports.direct}" for broker, ports in zip(self.brokers, self.kafka, strict=True))

    @property
    def driver_kafka(self) -> str:
        return _proxied(ports.driver_proxy for ports in self.kafka)

    @property
    def executors_kafka(self) -> str:
        return _proxied(ports.executors_proxy for ports in self.kafka)

    @property
    def links(self) -> dict[str, str]:
        """The address at which each proxy listens, by its name."""
        return {name: f"{hosts.of(toxiproxy.ROLE)}:{listen}" for name, (listen, _) in self._ways().items()}

    def _ways(self) -> dict[str, tuple[int, str]]:
        """Each proxy by name: the port at which it listens, and the address to which it leads."""
        ways = {POSTGRES_PROXY: (self.postgres.proxy, f"{hosts.of(postgres.ROLE)}:{self.postgres.direct}")}
        for broker, ports in zip(self.brokers, self.kafka, strict=True):
            ways[f"{broker}-driver"] = ports.driver_proxy, f"{hosts.of(broker)}:{ports.driver}"
            ways[f"{broker}-executors"] = ports.executors_proxy, f"{hosts.of(broker)}:{ports.executors}"
        return ways

    @property
    def behind_proxies(self) -> dict[str, tuple[int, ...]]:
        """The ports at which each server is reached past its proxies, by the server's role."""
        kafka = {broker: (ports.direct, ports.driver, ports.executors) for broker, ports in zip(self.brokers, self.kafka, strict=True)}
        return {**kafka, "postgres": (self.postgres.direct,)}

    def kafka_links(self, role: Role = "pipeline") -> dict[str, str]:
        """The ways of the role to Kafka's brokers: the address of each, by the name of its proxy."""
        return {name: self.links[name] for name in self.kafka_proxies(role)}

    def kafka_proxies(self, role: Role = "pipeline") -> list[str]:
        """The names of the proxies between the role and Kafka's brokers."""
        wanted = ("driver", "executors") if role == "pipeline" else (role,)
        return [f"{broker}-{who}" for broker in self.brokers for who in wanted]

    @property
    def brokers(self) -> list[str]:
        """The roles of the brokers' processes."""
        return kafka.roles(len(self.kafka))

    @property
    def roles(self) -> list[str]:
        """The roles of all processes."""
        return [*self.brokers, *OTHER_ROLES]

    @property
    def direct_server(self) -> Server:
        """PostgreSQL as who judges reaches it."""
        return postgres.server(Path(self.folder), self.postgres.direct)

    @property
    def pipeline_server(self) -> Server:
        """PostgreSQL as the job reaches it."""
        return postgres.server(Path(self.folder), self.postgres.proxy, toxiproxy.ROLE)

    @property
    def direct_postgres(self) -> str:
        return self.direct_server.conninfo

    @property
    def pipeline_postgres(self) -> str:
        return self.pipeline_server.conninfo

    def template(self, role: str) -> Template | None:
        """How those who play a role of the job are found and killed where this machine does not see their processes; None where it does."""
        return None

    @property
    def spark_master(self) -> str:
        return f"spark://{hosts.of(spark.MASTER)}:{self.spark.master}"

    @property
    def spark_ui(self) -> int | str:
        """The web page of Spark's master: the port of the embedded one, or where another's is."""
        return self.spark.master_ui

    @property
    def spark_properties(self) -> Path | None:
        """The file of properties that a driver needs on this Spark, which has its secret; None where it needs none."""
        return spark.secret_file(Path(self.folder))

    def spark_is_ready(self) -> bool:
        """Whether Spark's master counts every worker that runs."""
        return spark.registered(self.spark)

    @property
    def proxies(self) -> toxiproxy.Proxies:
        return toxiproxy.Proxies(self.toxiproxy_port)

    @property
    def messages(self) -> Messages:
        return Messages(self.toxiproxy_port)

    def read_messages(self, servers: Collection[str]) -> list[str]:
        """Put a message link behind each proxy to these servers (``kafka``, ``postgres``); connections that there are end. Returns the
        names of the proxies. Raises TestbedError when one does not lead through its link then."""
        linked = []
        for name, (_, direct) in self._ways().items():
            server: Protocol = "postgres" if name == POSTGRES_PROXY else "kafka"
            if server not in servers:
                continue
            link = self.messages.link(name, server, direct)
            if (leads := self.proxies.upstream(name)) != link.listen:
                raise TestbedError(f"the proxy {name} was to lead through its message link {link.listen}, but leads to {leads}")
            linked.append(name)
        return linked

    def straighten(self) -> list[str]:
        """Take every message link away, release what is held, end the trace; read back. Returns the names of the links that there were."""
        linked = {link.name: link.upstream for link in self.messages.state().links}
        self.messages.clear()
        for name, direct in linked.items():
            if (leads := self.proxies.upstream(name)) != direct:
                raise TestbedError(f"the proxy {name} was to lead straight to {direct}, but leads to {leads}")
        return sorted(linked)

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Testbed:
        return cls(
            data["folder"],
            tuple(kafka.KafkaPorts(**ports) for ports in data["kafka"]),
            postgres.PostgresPorts(**data["postgres"]),
            data["toxiproxy_port"],
            spark.SparkPorts(**data["spark"]),
        )


def _proxied(ports: Iterable[int]) -> str:
    return ",".join(f"{hosts.of(toxiproxy.ROLE)}:{port}" for port in ports)


def folder() -> Path:
    return settings.home() / "testbed"


def _state() -> Path:
    return folder() / "state.json"


def current() -> Testbed:
    """The testbed that is up. Raises TestbedError when there is none (or parts of it died)."""
    testbed = _read()
    if testbed is None:
        raise TestbedError("there is no testbed: start one with `streamproof testbed up`")
    dead = [name for name, state in status().items() if state != "up"]
    if dead:
        raise TestbedError(f"the testbed is damaged, {', '.join(dead)} not up: `streamproof testbed up` starts what is missing")
    return testbed


def _read() -> Testbed | None:
    try:
        return Testbed.parse(json.loads(_state().read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TestbedError(
            f"{_state()} cannot be understood ({type(error).__name__}: {error}); another version of streamproof may have written it. "
            "`streamproof down`, then start anew"
        ) from error


def started() -> Testbed | None:
    """The testbed that was started, whatever has become of it since; None when there is none. Asks none of its parts."""
    return _read()


def up(say: Callable[[str], None] = lambda line: None, brokers: int | None = None) -> Testbed:
    """Start what is not running, wait until all of it is ready, return its addresses. ``say`` gets a line per component.

    ``brokers`` is how many Kafka is to have: one by default, or as many as the testbed has. A Kafka of another number is ended, with all
    that it holds, and made anew; whoever asks for that holds the testbed, or sees to it that nobody does.

    Raises TestbedError when the set-up is incomplete or a component does not become ready. Safe to call from several processes.
    """
    extras.require("spark", "postgres")
    problems = install.verify()
    if problems:
        raise TestbedError(f"the set-up is not complete: {'; '.join(problems)}. Run {install.SET_UP}.")
    with _starting(), FreePorts() as ports:
        testbed = _read() or (_plan(hosts.brokers(), FixedPorts()) if hosts.stack() else _plan(brokers or 1, ports))
        if brokers not in (None, len(testbed.kafka)):
            stack.refuse(f"Kafka of {brokers} brokers, where the stack has {len(testbed.kafka)} ({hosts.BROKERS})")
            testbed = _rebuilt(testbed, brokers, ports, say)
        write_atomically(_state(), json.dumps(asdict(testbed), indent=1))
        begun = time.monotonic()

        def started(name: str, start: Callable[[], Any]) -> None:
            start()
            say(f"{name} ready after {time.monotonic() - begun:.1f} s")

        where = folder()
        with ThreadPoolExecutor(len(testbed.roles)) as pool:
            for job in [pool.submit(started, name, start) for name, start in _starts(where, testbed).items()]:
                job.result()
        linked = {link.name: link.listen for link in testbed.messages.state().links}
        for name, (listen, upstream) in testbed._ways().items():
            testbed.proxies.ensure(name, f"{hosts.listen()}:{listen}", linked.get(name, upstream))
        for address in (testbed.direct_kafka, testbed.driver_kafka, testbed.executors_kafka):
            kafka.wait_until_answering(address, len(testbed.kafka))
        dead = {name: state for name, state in _settled().items() if state != "up"}
        if dead:
            named = ", ".join(f"{name} ({state})" for name, state in dead.items())
            ends = "".join(f"\n{name}.log ends with:\n{tail(where / f'{name}.log')}" for name in dead)
            raise TestbedError(f"the testbed was started, but {named} did not last; look at the logs in {where}, then try again.{ends}")
        return testbed


def _starts(where: Path, testbed: Testbed) -> dict[str, Callable[[], Any]]:
    """What starts each part where it does not run, and waits until it is ready."""
    if hosts.stack():
        return {role: functools.partial(stack.ask, role, where) for role in testbed.roles}
    return {
        "kafka": lambda: kafka.start(where, testbed.kafka),
        "postgres": lambda: postgres.start(where, testbed.postgres),
        "toxiproxy": lambda: toxiproxy.start(where, testbed.toxiproxy_port),
        "spark": lambda: _start_spark(where, testbed),
    }


def planned() -> Testbed:
    """The testbed of a stack, whose containers are about to start: its addresses, and the secret that Spark's parts share."""
    testbed = _read() or _plan(hosts.brokers(), FixedPorts())
    folder().mkdir(parents=True, exist_ok=True)
    write_atomically(_state(), json.dumps(asdict(testbed), indent=1))
    spark.secret_file(folder())
    return testbed


def serve(role: str) -> NoReturn:
    """Be the container of that role: start its server, and again when somebody asks for it. Raises TestbedError for a role that the stack
    has not."""
    testbed, where = planned(), folder()
    starts: dict[str, Callable[[], Any]] = {
        "postgres": lambda: postgres.start(where, testbed.postgres),
        "toxiproxy": lambda: toxiproxy.start(where, testbed.toxiproxy_port),
        spark.MASTER: lambda: spark.start_master(where, testbed.spark),
        **{f"spark-{worker}": functools.partial(spark.start_worker, where, testbed.spark, worker) for worker in spark.WORKERS},
        **{broker: functools.partial(kafka.start_one, where, testbed.kafka, number) for number, broker in enumerate(testbed.brokers, 1)},
    }
    role = testbed.brokers[0] if role == kafka.ROLE else role
    if role not in starts:
        raise TestbedError(f"the stack has no server {role!r}, expected one of {', '.join(starts)}")
    stack.serve(role, where, starts[role])


def _settled() -> dict[str, str]:
    """What :func:`status` says once all that lives answers, or after ``SETTLED_S``: on a busy machine one look is not enough."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        states = status()
        if all(state in ("up", "down") for state in states.values()) or time.monotonic() > deadline:
            return states
        time.sleep(POLL_S)


def _start_spark(where: Path, testbed: Testbed) -> Handle:
    master = spark.start_master(where, testbed.spark)
    workers = {role: spark.start_worker(where, testbed.spark, role) for role in spark.WORKERS}
    for role, worker in workers.items():
        host, port = hosts.of_worker(role), testbed.spark.worker_uis[role]
        wait_until(f"{worker.role}: accept connections", functools.partial(listening, host, port), spark.READY_S, process=worker)
    wait_until(f"spark-master: {len(workers)} workers alive", lambda: spark.registered(testbed.spark), spark.READY_S, process=master)
    return master


def _rebuilt(testbed: Testbed, brokers: int, ports: FreePorts, say: Callable[[str], None]) -> Testbed:
    """The testbed with its Kafka gone, to be started with ``brokers``; broker 1 keeps its ports, and all else stays as it is."""
    say(f"kafka is made anew with {brokers} broker{'s' if brokers > 1 else ''}, it had {len(testbed.kafka)}; what it held is gone")
    toxiproxy.start(folder(), testbed.toxiproxy_port)
    for name in testbed.kafka_proxies():
        testbed.proxies.destroy(name)
    kafka.stop_all(folder())
    return replace(testbed, kafka=(testbed.kafka[0], *(_kafka_ports(ports) for _ in range(brokers - 1))))


def _kafka_ports(ports: Ports) -> kafka.KafkaPorts:
    return kafka.KafkaPorts(*(ports.take() for _ in fields(kafka.KafkaPorts)))


def _plan(brokers: int, ports: Ports) -> Testbed:
    return Testbed(
        str(folder()),
        tuple(_kafka_ports(ports) for _ in range(brokers)),
        postgres.PostgresPorts(ports.take(), ports.take()),
        ports.take(),
        spark.SparkPorts(
            ports.take(), ports.take(), {role: ports.take() for role in spark.WORKERS}, {r: ports.take() for r in spark.WORKERS}
        ),
    )


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """One starter at a time; the kernel drops the lock when its holder dies."""

    def taken(holder: str) -> TestbedError:
        return TestbedError(f"another process (pid {holder}) has been starting the testbed for {START_LOCK_S:.0f} s: `streamproof down`")

    with exclusive(folder() / "start.lock", START_LOCK_S, taken):
        yield


def status() -> dict[str, str]:
    """Each component's state: ``up``, ``down``, or what is wrong with it. Empty when no testbed was started."""
    testbed = _read()
    if testbed is None:
        return {}
    handles = {role: remembered(role, folder()) for role in testbed.roles}
    states = {role: "up" if handle and handle.alive else "down" for role, handle in handles.items()}
    for broker, ports in zip(testbed.brokers, testbed.kafka, strict=True):
        if states[broker] == "up" and not kafka.ready(broker, ports):
            states[broker] = "does not accept connections"
    if states["postgres"] == "up" and not postgres.ready(folder(), testbed.postgres):
        states["postgres"] = "does not answer"
    for name, (port, _) in testbed._ways().items():
        if states["toxiproxy"] == "up" and not listening(hosts.of(toxiproxy.ROLE), port):
            states["toxiproxy"] = f"its proxy of {name} is down"
    return states


def down() -> int:
    """Stop everything that carries this testbed's mark and forget its data. Returns how many processes were ended.

    Raises TestbedError when a process survives.
    """
    stack.refuse("the testbed cannot be ended from inside")
    ended = 0
    postgres.quit_at_once(folder())
    for _ in range(5):
        processes = marked()
        if not processes:
            break
        ended += len(processes)
        left = stop(processes)
        if left:
            raise TestbedError(f"processes {[process.pid for process in left]} do not end even by SIGKILL")
    else:
        raise TestbedError(f"processes with {MARK}={settings.home()} keep appearing: {[process.pid for process in marked()]}")
    for pid_file in (settings.home() / "airflow").glob("*.pid"):
        pid_file.unlink()
    _forget(folder())
    scratch.remove(folder())
    return ended


def rebuild(say: Callable[[str], None] = lambda line: None) -> Testbed:
    """Stop every component, forget its data and start all of it anew, at the addresses that it has. What else carries the mark goes on:
    Airflow, a run's own processes.

    Raises TestbedError when a component survives, or does not become ready.
    """
    with _starting():
        postgres.quit_at_once(folder())
        left = stop(_at_work_here())
        if left:
            raise TestbedError(f"processes {[process.pid for process in left]} do not end even by SIGKILL")
        scratch.remove(folder())
        for path in folder().iterdir():
            if path.is_dir():
                _forget(path)
            elif path != _state() and path.suffix != ".lock":
                path.unlink()
    return up(say)


def _at_work_here() -> list[psutil.Process]:
    """The processes of the components, and what they started (executors, Python workers, backends): they work in the testbed's folder."""
    processes = []
    for process in marked():
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder()):
                processes.append(process)
    return processes


def _forget(data: Path) -> None:
    """Delete the data. What a process that is just ending still writes there is deleted again, for a moment."""
    deadline = time.monotonic() + FORGET_S
    while True:
        shutil.rmtree(data, ignore_errors=True)
        if not data.exists():
            return
        if time.monotonic() > deadline:
            raise TestbedError(f"{data} cannot be deleted: is something else writing there?")
        time.sleep(0.05)

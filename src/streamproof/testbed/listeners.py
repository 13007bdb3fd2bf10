"""What listens while a run goes on, what each listener asks for, and what it allows.

Everything listens on loopback addresses only. A process of another user on the same machine reaches those too: so what can ask for a secret
does, and the rest is listed here with what it allows. A test compares this list with what really listens during a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from streamproof.testbed.embedded import Testbed

NOTHING = "nothing"
SPARK_SECRET = "the testbed's Spark secret"
AS_BEHIND = "what the listener behind it asks for"


@dataclass(frozen=True)
class Listener:
    """A listening port by what it is for. ``asks_for`` is what a client must know, ``allows`` what a client can do then."""

    name: str
    asks_for: str
    allows: str


KAFKA_CLIENTS = Listener("Kafka: DIRECT, DRIVER and EXECUTORS of each broker", NOTHING, "read, write and delete topics of the testbed")
KAFKA_CONTROLLER = Listener("Kafka: CONTROLLER of each broker", NOTHING, "change Kafka's metadata")
POSTGRES = Listener("PostgreSQL", "a password (SCRAM)", "read and write the tables of the testbed")
TOXIPROXY_HTTP = Listener(
    "Toxiproxy: its HTTP interface",
    NOTHING,
    "break links, relay TCP connections, and append traces to files named `*.jsonl`, with the rights of the owner",
)
KAFKA_PROXY = Listener("Toxiproxy: the proxies before Kafka", AS_BEHIND, "the same")
POSTGRES_PROXY = Listener("Toxiproxy: the proxy before PostgreSQL", AS_BEHIND, "the same")
MESSAGE_LINKS = Listener("Toxiproxy: the message links of a run that asks for them", AS_BEHIND, "the same")
SPARK_RPC = Listener("Spark: master, workers, drivers and executors", SPARK_SECRET, "submit jobs, run code as the owner of the testbed")
SPARK_UI = Listener("Spark: web pages of master, workers and drivers", NOTHING, "read settings (secrets are blanked) and logs; end nothing")
PY4J_GATEWAY = Listener("Py4J: in a driver's JVM, for its Python", "a token, drawn for each driver", "run code as the driver")
# PySpark 4.1 starts it without its token (``java_gateway.launch_gateway`` gives ``PythonParameters`` no ``auth_token``).
PY4J_CALLBACKS = Listener(
    "Py4J: in a driver's Python, for its JVM", NOTHING, "call the functions that the driver has given to Spark, as its `foreachBatch`"
)
AIRFLOW = Listener("Airflow: its API server", "a login", "see runs; with the role of an administrator: start and stop them")

ALL = (
    KAFKA_CLIENTS,
    KAFKA_CONTROLLER,
    KAFKA_PROXY,
    POSTGRES,
    POSTGRES_PROXY,
    TOXIPROXY_HTTP,
    MESSAGE_LINKS,
    SPARK_RPC,
    SPARK_UI,
    PY4J_GATEWAY,
    PY4J_CALLBACKS,
    AIRFLOW,
)


@dataclass(frozen=True)
class Open:
    """A socket that listens: its address, and the process that holds it."""

    host: str
    port: int
    process: psutil.Process


def listening_sockets(processes: list[psutil.Process]) -> list[Open]:
    """The listening TCP sockets of the processes; those of a process that is gone are left out."""
    sockets = []
    for process in processes:
        try:
            connections = process.net_connections("tcp")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        listening = [connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN]
        sockets += [Open(address.ip, address.port, process) for address in listening]
    return sockets


def of_testbed(testbed: Testbed) -> dict[int, Listener]:
    """The listeners of the testbed's own components by port."""
    ports: dict[int, Listener] = {
        testbed.postgres.direct: POSTGRES,
        testbed.postgres.proxy: POSTGRES_PROXY,
        testbed.toxiproxy_port: TOXIPROXY_HTTP,
        testbed.spark.master: SPARK_RPC,
        testbed.spark.master_ui: SPARK_UI,
    }
    for broker in testbed.kafka:
        ports |= dict.fromkeys((broker.direct, broker.driver, broker.executors), KAFKA_CLIENTS)
        ports |= dict.fromkeys((broker.driver_proxy, broker.executors_proxy), KAFKA_PROXY)
        ports[broker.controller] = KAFKA_CONTROLLER
    ports |= dict.fromkeys(testbed.spark.workers.values(), SPARK_RPC)
    ports |= dict.fromkeys(testbed.spark.worker_uis.values(), SPARK_UI)
    return ports

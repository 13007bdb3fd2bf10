"""Where the testbed's servers are: on loopback, or, in the stack of ``docker-compose.yml``, each in a container that is known by its role.

``STREAMPROOF_STACK`` is set in each container of the stack: the name of its project. The containers share one process namespace and one
folder, so that a server's process is found there as it is on one machine, and one network, on which each has the name of its role.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import socket

from streamproof.errors import BadInput

STACK, BROKERS = "STREAMPROOF_STACK", "STREAMPROOF_BROKERS"
LOOPBACK = "127.0.0.1"
EVERY_INTERFACE = "0.0.0.0"
WORKERS = {"worker-1": "127.0.0.2", "worker-2": "127.0.0.3"}
"""The loopback address of each of Spark's workers, where all is on one machine."""


def stack() -> str | None:
    """The project of the stack of which this process is part, None where the testbed is on loopback."""
    return os.environ.get(STACK) or None


def brokers() -> int:
    """How many brokers the stack's Kafka has. Raises BadInput when its setting is neither 1 nor 3."""
    asked = os.environ.get(BROKERS) or "1"
    if asked not in ("1", "3"):
        raise BadInput(f"{BROKERS}: expected 1 or 3, came {asked!r}")
    return int(asked)


def of(role: str) -> str:
    """The host of a server, by its role."""
    return role if stack() else LOOPBACK


def of_worker(worker: str) -> str:
    """The host of one of Spark's workers."""
    return f"spark-{worker}" if stack() else WORKERS[worker]


def here() -> str:
    """Where the others find a server of this process, as a driver is one."""
    return socket.gethostname() if stack() else LOOPBACK


def listen() -> str:
    """At which address a server listens so that the others find it."""
    return EVERY_INTERFACE if stack() else LOOPBACK


def is_ours(address: str, roles: tuple[str, ...]) -> bool:
    """Whether an IP address is of the testbed: of loopback, or of a container that plays one of the roles."""
    return ipaddress.ip_address(address).is_loopback or (stack() is not None and address in _addresses(roles))


@functools.cache
def _addresses(roles: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for role in roles:
        try:
            found |= {str(info[4][0]) for info in socket.getaddrinfo(role, None, socket.AF_INET)}
        except OSError:
            continue
    return frozenset(found)

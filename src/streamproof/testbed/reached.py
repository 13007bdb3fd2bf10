"""Whether a Kafka that runs elsewhere is reached as it is described. Asked before anything is made there, and before anything is broken.

    1. each address takes a connection; its certificate comes from the authority, and holds the name that was connected to
    2. the broker lets the client in
    3. behind an address of driver or executors, each broker advertises one of these addresses: a client that is advertised another goes
       round the proxy

A client checks a certificate against the name that it connects to. In front of a broker a proxy has another: the broker's certificate must
hold it as well, since a proxy passes on what is encrypted as it is.
"""

from __future__ import annotations

import logging
import ssl

from streamproof.kafka import login
from streamproof.kafka.login import LoginRefused
from streamproof.kafka.servers import Servers
from streamproof.testbed.external import Outside
from streamproof.testbed.external_kafka import Kafka
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.postgres import Server
from streamproof.testbed.process import TestbedError
from streamproof.testbed.rights import PREFIX

ANSWER_S = 15.0
log = logging.getLogger("streamproof.testbed.reached")
_HOST_MISMATCH, _ADDRESS_MISMATCH = 62, 64  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def check(testbed: Outside, wants_executors: str | None = None) -> None:
    """Raises TestbedError naming the address that is not reached, and what to do. ``wants_executors`` is a fault of the run that needs
    Spark's executors to be on this machine."""
    if testbed.external.spark is not None:
        testbed.external.spark.check(wants_executors)
    for role, template in testbed.external.roles.items():
        template.check(role.value, {"run": testbed.run, "job": f"{PREFIX}{testbed.run}"})
    if testbed.external.kafka is not None:
        _kafka(testbed, testbed.external.kafka)
    if testbed.external.postgres is not None:
        for server in (testbed.direct_server, testbed.pipeline_server):
            _postgres(server)


def _kafka(testbed: Outside, kafka: Kafka) -> None:
    for way in ("direct", "driver", "executors"):
        for address in getattr(kafka, way).split(","):
            _connects(Servers(address, testbed.access), f"the external Kafka: {way}: {address}")
    for way in ("driver", "executors"):
        if getattr(testbed.external.may_break, way):
            _advertises(way, Servers(getattr(kafka, way), testbed.access))


def _connects(address: Servers, what: str) -> None:
    try:
        login.connected(address, ANSWER_S).close()
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
            raise TestbedError(
                f"{what}: the certificate there does not hold this name ({error.verify_message}). A client checks the name that it "
                "connects to, and a proxy has another than the broker: issue the broker's certificate with both names "
                "(subjectAltName), or let the proxy have a name that it holds"
            ) from error
        raise TestbedError(
            f"{what}: the certificate there cannot be trusted ({error.verify_message}); expected one that comes from an authority in "
            f"tls.ca, {address.access.ca}"
        ) from error
    except LoginRefused as error:
        raise TestbedError(f"{what}: {error}. Is the user there, and is its password the one that `credentials` leads to?") from error
    except ssl.SSLError as error:
        raise TestbedError(f"{what}: no encrypted connection ({error.reason}): expected TLS there, as `tls` says") from error
    except OSError as error:
        raise TestbedError(f"{what}: no connection ({error}). Is it up, and is this its address?") from error


def _advertises(way: str, servers: Servers) -> None:
    others = sorted(set(Cluster(servers).advertised()) - set(servers.split(",")))
    if others:
        raise TestbedError(
            f"the external Kafka: who comes by {servers} ({way}) is sent on to {', '.join(others)}, round the proxies that may be broken. "
            "Let that listener advertise the proxies' addresses (advertised.listeners), as docs/clusters.md shows"
        )


def _postgres(server: Server) -> None:
    import psycopg

    what = f"the external PostgreSQL: {server.host}:{server.port}"
    try:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            allowed = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
            prepared = connection.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone()
    except psycopg.OperationalError as error:
        problem = " ".join(str(error).split())
        advice = (
            "A client checks the name that it connects to, and a proxy has another than the server: issue the certificate with both names "
            "(subjectAltName), or let the proxy have a name that it holds"
            if "does not match host name" in problem
            else f"Is it up, does it speak TLS with a certificate from an authority in {server.ca}, and does it let this user in?"
        )
        raise TestbedError(f"{what}: no connection ({problem}). {advice}") from None
    if allowed != (True,):
        raise TestbedError(f"{what}: the run's user has no right to CREATE in the database {server.database}, where a run makes a schema")
    if prepared == (0,):
        log.warning("%s: max_prepared_transactions is 0: a job cannot prepare transactions there", what)

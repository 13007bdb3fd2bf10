"""A PostgreSQL that somebody else runs: over TLS only, by a password only, with a schema of somebody else's, and a proxy in front of it."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from streamproof.testbed import postgres
from streamproof.testbed.process import FreePorts, wait_until
from tests.support import postgres_tls
from tests.support.secured import Authority

USER, DATABASE = "chaos", "app"
READY_S = 60.0


@dataclass(frozen=True)
class SecuredPostgres:
    """A PostgreSQL that runs. ``password`` is that of :data:`USER`, who owns nothing but may make schemas."""

    folder: Path
    port: int
    proxy: int
    ca: Path
    password: str

    def described(self, credentials: dict[str, Any], *, proxied: bool = True) -> dict[str, Any]:
        """What an experiment says of it."""
        pipeline = f"127.0.0.1:{self.proxy if proxied else self.port}"
        return {
            "direct": f"127.0.0.1:{self.port}",
            "pipeline": pipeline,
            "database": DATABASE,
            "ca": str(self.ca),
            "credentials": credentials,
        }

    def administrator(self, database: str = DATABASE) -> psycopg.Connection[Any]:
        """As its administrator reaches it."""
        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} dbname={database} user={postgres.USER} passfile={postgres.passfile(self.folder)} "
            f"sslmode=verify-ca sslrootcert={self.ca}",
            autocommit=True,
        )

    def others(self) -> list[Any]:
        """What is there that is not a run's: schemas, and the rows of somebody else's."""
        with self.administrator() as connection:
            schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1").fetchall()
            rows = connection.execute("SELECT xmin::text, ctid::text, * FROM theirs.orders ORDER BY id").fetchall()
            prepared = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
        return [schemas, rows, prepared]


@contextmanager
def secured_postgres(authority: Authority, *names: str) -> Iterator[SecuredPostgres]:
    """A PostgreSQL whose certificate comes from ``authority`` and holds ``names``. It is gone afterwards, with all that it held."""
    folder = Path(tempfile.mkdtemp(prefix="streamproof-secured-postgres-")).resolve()
    running: subprocess.Popen[bytes] | None = None
    front = ExitStack()
    try:
        with FreePorts() as free:
            port, proxy, behind = free.take(), free.take(), free.take()
            certificate, key = authority.issue("postgres", *(names or ("127.0.0.1", "localhost")))
            postgres._make_data(folder)
            data = postgres._data(folder)
            options = {"listen_addresses": "127.0.0.1", "port": str(behind), **postgres.SETTINGS, **postgres.EMBEDDED_SETTINGS}
            (data / "postgresql.auto.conf").write_text("".join(f"{name} = '{value}'\n" for name, value in options.items()))
            command = [*postgres._as_another(), str(postgres.programs() / "postgres"), "-D", str(data)]
            with open(folder / "postgres.log", "wb") as log:
                running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
            front.enter_context(postgres_tls.in_front(port, behind, certificate, key))  # the server's build has no TLS
            there = SecuredPostgres(folder, port, proxy, authority.file, secrets.token_urlsafe(18))

            def answers() -> bool:
                try:
                    there.administrator(postgres.DATABASE).close()
                except psycopg.OperationalError:
                    return False
                return True

            wait_until("the secured PostgreSQL: answer", answers, READY_S)
        with there.administrator(postgres.DATABASE) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        with there.administrator() as connection:
            connection.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{there.password}'")
            connection.execute(f"GRANT CREATE ON DATABASE {DATABASE} TO {USER}")
            connection.execute("CREATE SCHEMA theirs")
            connection.execute("CREATE TABLE theirs.orders AS SELECT generate_series(1, 50) AS id, 'somebody else' AS name")
        yield there
    finally:
        front.close()
        if running is not None:
            running.send_signal(signal.SIGQUIT)
            running.wait(READY_S)
        shutil.rmtree(folder, ignore_errors=True)

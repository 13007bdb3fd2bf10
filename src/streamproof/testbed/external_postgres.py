"""A PostgreSQL that was not started here: where it is, and how a client gets in.

Always by a password and over TLS with ``sslmode=verify-full``: a client checks that the certificate comes from the authority and holds the
name that it connects to, a proxy's as well. The password is in a passfile of the run's that only its owner can read; a connection string
names that file, so it holds no secret.

Checked against: libpq 17 and PostgreSQL 18.4; pgjdbc takes the same parameters (``sslmode``, ``sslrootcert``), and the passfile from
``PGPASSFILE`` or its own property.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from streamproof.testbed import credentials
from streamproof.testbed.credentials import Credentials
from streamproof.testbed.external_kafka import ONE_ADDRESS
from streamproof.testbed.postgres import Server

PASSFILE = "postgres.pass"
_USER = "postgres.user"


class Postgres(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    direct: str = Field(pattern=rf"^{ONE_ADDRESS}$", description="host:port, for the judges")
    pipeline: str = Field(pattern=rf"^{ONE_ADDRESS}$", description="host:port, for the job: of a proxy, or the same")
    database: str = Field(min_length=1, max_length=63, description="The database in which a run makes a schema of its own")
    ca: str = Field(min_length=1, description="A file with the certificates of the authorities that its certificate may come from, in PEM")
    credentials: Credentials = Field(description="Where user name and password are: environment, file or airflow")

    def server(self, address: str, run: str) -> Server:
        """How a client of that run reaches it there. The login is kept beside the runs, once. Raises TestbedError."""
        folder = credentials.folder_of(run)
        if not (folder / PASSFILE).exists():
            self._keep(folder)
        host, _, port = address.rpartition(":")
        user = (folder / _USER).read_text()
        return Server(host, int(port), self.database, user, folder / PASSFILE, str(credentials.at(self.ca)))

    def _keep(self, folder: Path) -> None:
        credentials.readable(str(credentials.at(self.ca)), "the external PostgreSQL: ca")
        login = self.credentials.login("the external PostgreSQL", os.environ)
        credentials.keep(folder, _USER, login.username)
        user, password = (text.replace("\\", "\\\\").replace(":", "\\:") for text in (login.username, login.password))
        credentials.keep(folder, PASSFILE, f"*:*:*:{user}:{password}\n")

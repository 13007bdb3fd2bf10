"""Who may speak with a Storm of ours: only who has the password of its start. It is made for each, and lies in a file of its owner's.

ZooKeeper takes no session without it, Nimbus and the Supervisor no call. Between the parts of a topology there is no port: it has one
worker, in which they hand each other objects.

Checked against: Storm 2.8 (its Thrift servers and clients take the JAAS sections ``StormServer`` and ``StormClient``), ZooKeeper 3.9
(``Server`` and ``Client``; ``sessionRequireClientSASLAuth``).
"""

from __future__ import annotations

import secrets
from pathlib import Path

from streamproof.evidence.folder import write_atomically

FILE = "jaas.conf"
USER = "storm"
LOGIN = "org.apache.storm.shade.org.apache.zookeeper.server.auth.DigestLoginModule"


def write(folder: Path) -> None:
    """Make a password, and the file in ``folder`` that tells a Java of it. An earlier one is replaced."""
    password = secrets.token_urlsafe(24)
    server = f'{LOGIN} required user_{USER}="{password}";'
    client = f'{LOGIN} required username="{USER}" password="{password}";'
    sections = {"Server": server, "Client": client, "StormServer": server, "StormClient": client}
    told = "".join(f"{name} {{ {said} }};\n" for name, said in sections.items())
    write_atomically(folder / FILE, told, mode=0o600)


def options(folder: Path) -> list[str]:
    """Those of a Java that is to know the password."""
    # What ZooKeeper calls its FIPS mode knows no passwords by DIGEST-MD5, and is on by default.
    return [f"-Djava.security.auth.login.config={folder / FILE}", "-Dzookeeper.fips-mode=false"]

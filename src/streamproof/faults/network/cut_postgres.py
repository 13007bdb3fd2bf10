"""``cut_postgres``: close every connection to PostgreSQL, and refuse new ones, for a while.

The model: a firewall's rule, a cable that is pulled at the switch. A task in the middle of its COMMIT does not learn whether it was carried
out; a transaction that is prepared waits for the driver to come back.

The proxy is disabled. Healing removes it; a connection that was swallowed is closed with that.

Evidence: the proxy reads back as it was asked for, a probe through it gets no answer as long as it lasts, the job commits nothing
meanwhile, and goes on afterwards.
Checked against: Toxiproxy 2.12 (a toxic that is removed closes the connections it had stopped).
"""

from __future__ import annotations

from streamproof.faults.outage import LinkOutage
from streamproof.jobs.profile import POSTGRES


class CutPostgres(LinkOutage):
    of_links = frozenset({POSTGRES})
    ends_connections = True
    what = "the link to PostgreSQL"
    name = "cut_postgres"
    summary = "Close every connection to PostgreSQL, and refuse new ones, for a while"
    target = "the link to PostgreSQL"

"""``black_hole_postgres``: swallow everything between the pipeline and PostgreSQL for a while.

The model: a network partition without a reset: connections stay open and whatever is sent disappears. libpq has no read timeout of its own;
who waits for an answer waits until the connection is closed.

A Toxiproxy ``timeout`` toxic on both directions, toxicity 1.0. Healing removes it; a connection that was swallowed is closed with that.

Evidence: the proxy reads back as it was asked for, a probe through it gets no answer as long as it lasts, the job commits nothing
meanwhile, and goes on afterwards.
Checked against: Toxiproxy 2.12 (a toxic that is removed closes the connections it had stopped).
"""

from __future__ import annotations

from streamproof.faults.outage import LinkOutage
from streamproof.jobs.profile import POSTGRES


class BlackHolePostgres(LinkOutage):
    of_links = frozenset({POSTGRES})
    toxic = ("timeout", {"timeout": 0})
    what = "the link to PostgreSQL"
    name = "black_hole_postgres"
    summary = "Swallow everything between the pipeline and PostgreSQL for a while"
    target = "the link to PostgreSQL"

"""``streamproof component``: what a container of the stack runs."""

from __future__ import annotations

from typing import Annotated

import typer

from streamproof.errors import BadInput
from streamproof.testbed import embedded, hosts

INIT = "init"


def component(role: Annotated[str, typer.Argument(help="Of the server, as docker-compose.yml names it; or `init`.")]) -> None:
    """Be one container of the stack: start its server, and start it again when somebody asks for it."""
    if hosts.stack() is None:
        raise BadInput(f"component: {hosts.STACK} is not set: this is what a container of docker-compose.yml runs")
    if role == INIT:
        embedded.planned()
    else:
        embedded.serve(role)

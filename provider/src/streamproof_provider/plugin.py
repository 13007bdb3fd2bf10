"""Airflow's plugin of this provider: it serves the reports that the links of tasks lead to.

Every component of Airflow loads plugins, tasks too: the web app is made when the API server is first asked for it.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from streamproof_provider.links.streamproof import PREFIX


async def app(scope: Any, receive: Any, send: Any) -> None:
    from streamproof_provider.pages.app import app

    await app(scope, receive, send)


class StreamproofProviderPlugin(AirflowPlugin):
    name = "streamproof_provider"
    fastapi_apps = [{"name": "streamproof's results", "app": app, "url_prefix": PREFIX}]  # noqa: RUF012 - as Airflow declares it

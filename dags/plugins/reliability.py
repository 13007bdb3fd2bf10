"""The plugin: a page "Streaming reliability" in Airflow's navigation, and the web app that serves it and the files of runs.

Every component of Airflow loads plugins, tasks too: the app, with all that it imports, is made when the API server is first asked for it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

PREFIX = "/streamproof"
ROOT = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


async def app(scope: Any, receive: Any, send: Any) -> None:
    from dags.reliability.app import app

    await app(scope, receive, send)


class ReliabilityPlugin(AirflowPlugin):
    name = "streamproof_reliability"
    fastapi_apps = [{"name": "Streaming reliability", "app": app, "url_prefix": PREFIX}]  # noqa: RUF012 - as Airflow declares it
    external_views = [  # noqa: RUF012
        {
            "name": "Streaming reliability",
            "href": f"{ROOT}{PREFIX}/",
            "destination": "nav",
            "url_route": "streaming-reliability",
            "nav_top_level": True,
            "icon": f"{ROOT}{PREFIX}/assets/icon.svg",
            "icon_dark_mode": f"{ROOT}{PREFIX}/assets/icon-dark.svg",
        }
    ]

"""Airflow's plugin, found by its entry point: a page "Streaming reliability" in the navigation, the web app that serves it and the files of
runs, and a task's links to what its run made.

Every component of Airflow loads plugins, tasks too: the app, with all that it imports, is made when the API server is first asked for it.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from streamproof.airflow.links import LINKS, PREFIX, pages


async def app(scope: Any, receive: Any, send: Any) -> None:
    from streamproof.airflow.pages.app import app

    await app(scope, receive, send)


class StreamproofPlugin(AirflowPlugin):
    name = "streamproof"
    operator_extra_links = list(LINKS)  # noqa: RUF012 - as Airflow declares it
    fastapi_apps = [{"name": "Streaming reliability", "app": app, "url_prefix": PREFIX}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Streaming reliability",
            "href": f"{pages()}/",
            "destination": "nav",
            "url_route": "streaming-reliability",
            "nav_top_level": True,
            "icon": f"{pages()}/assets/icon.svg",
            "icon_dark_mode": f"{pages()}/assets/icon-dark.svg",
        }
    ]

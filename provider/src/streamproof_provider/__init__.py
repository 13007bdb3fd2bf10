"""Runs streamproof's experiments from DAGs of your own. Airflow finds this package by its entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any

NAME = "streamproof"
_HOOK = "streamproof_provider.hooks.streamproof"
_OPERATORS = "streamproof_provider.operators.streamproof"
_LINKS = "streamproof_provider.links.streamproof"
_PATH = {"type": ["string", "null"]}


def get_provider_info() -> dict[str, Any]:
    """What Airflow asks of a provider."""
    return {
        "package-name": "airflow-provider-streamproof",
        "name": NAME,
        "description": "Breaks a streaming job on purpose and proves, record by record, what it delivered",
        "integrations": [{"integration-name": NAME, "external-doc-url": "https://github.com/streamproof/streamproof", "tags": ["service"]}],
        "operators": [{"integration-name": NAME, "python-modules": [_OPERATORS]}],
        "hooks": [{"integration-name": NAME, "python-modules": [_HOOK]}],
        "connection-types": [
            {
                "connection-type": NAME,
                "hook-class-name": f"{_HOOK}.StreamproofHook",
                "hook-name": NAME,
                "conn-fields": {
                    "virtual_environment": {
                        "label": "Virtual environment",
                        "schema": {"type": "string"},
                        "description": "The folder of the virtual environment that streamproof is installed in, on the worker",
                    },
                    "project": {
                        "label": "Project",
                        "schema": {"type": "string"},
                        "description": "The folder of the streamproof project, with its experiments",
                    },
                    "state_folder": {"label": "State folder", "schema": _PATH, "description": ".streamproof in the project when empty"},
                    "cache_folder": {"label": "Cache folder", "schema": _PATH, "description": "cache in the state folder when empty"},
                    "state_url": {
                        "label": "URL of the state folder",
                        "schema": _PATH,
                        "description": "Where a web server serves its `runs` and `sweeps`; Airflow serves reports when empty",
                    },
                },
                "ui-field-behaviour": {"hidden-fields": ["host", "schema", "login", "password", "port", "extra"], "relabeling": {}},
            }
        ],
        "extra-links": [f"{_LINKS}.{name}" for name in ("ReportLink", "DataDocsLink", "MatrixLink")],
    }

"""Registers the links of :mod:`streamproof.airflow.links` with Airflow."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from streamproof.airflow.links import LINKS


class StreamproofLinks(AirflowPlugin):
    name = "streamproof_links"
    operator_extra_links = list(LINKS)  # noqa: RUF012 - Airflow's class has it so

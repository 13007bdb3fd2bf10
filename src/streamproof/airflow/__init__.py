"""Airflow: operators that perform the stages of a run, the form, the pages, and Airflow itself as a service of this machine."""

from __future__ import annotations

from streamproof import extras

extras.require("airflow")

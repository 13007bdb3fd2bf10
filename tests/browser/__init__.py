"""Tests in a real browser, ``make test-browser``: Airflow's form, a run, its report, the plugin's pages."""

"""Front door 1: Airflow. A DAG whose tasks are the steps of a run, and a demonstration that triggers it.

Thin: a task is one call of ``streamproof.run.stages.perform``. Nothing here knows what a step does.
"""

"""The engine ``flink``: a job on a Flink of its own, a JobManager and TaskManagers as processes of this machine."""

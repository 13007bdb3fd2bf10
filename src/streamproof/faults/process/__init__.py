"""Processes of the job that are killed or crash at a step of its protocol."""

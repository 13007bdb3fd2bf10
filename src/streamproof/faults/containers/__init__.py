"""Faults of containers: only in the stack of docker-compose.yml, by the container engine that its user mounts."""

"""A run's folder: its journal, and the histories of what was sent and delivered."""

"""The job under test, whatever it is written in: what is known of it, where it runs, and the engine that answers for it."""

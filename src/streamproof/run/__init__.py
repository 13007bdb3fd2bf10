"""A run's life: its stages, the supervisor of the job, the fault injector, the lock, the watchdog, teardown; and several runs in a row."""

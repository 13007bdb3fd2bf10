"""Break a streaming job on purpose: experiments, faults, their schedule, the workload, the steps of a run, and the command line."""

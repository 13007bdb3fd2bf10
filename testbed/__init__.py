"""The systems under test as processes of this machine: one file per component."""

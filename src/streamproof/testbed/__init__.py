"""The servers that a job under test uses: one file for each component."""

"""Any command line as the job under test."""

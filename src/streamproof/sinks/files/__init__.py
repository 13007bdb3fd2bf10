"""A folder of files as output."""

"""The command line: ``streamproof``."""

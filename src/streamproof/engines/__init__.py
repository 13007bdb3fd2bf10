"""Kinds of jobs under test: how each is launched, which of its processes play which role, and how far it has come."""

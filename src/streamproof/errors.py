"""Errors that are the user's to mend."""

from __future__ import annotations


class BadInput(Exception):
    """Something the user gave cannot be used. The message names the thing, what was expected, what came, and what to do."""

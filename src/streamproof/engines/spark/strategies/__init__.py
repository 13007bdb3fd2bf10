"""Commit strategies: how a streaming job commits its output and its progress through the source. One file each."""

"""The engine ``storm``: a topology on a Storm of its own."""

"""Links that are slow, narrow, cut or silent."""

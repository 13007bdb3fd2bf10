"""Both histories compared in bounded memory; only candidates reach the checkers."""

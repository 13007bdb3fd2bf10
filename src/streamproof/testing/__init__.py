"""streamproof in the tests of others: a plugin for pytest, with a fixture that runs experiments and asserts guarantees of the runs."""

"""Mutation testing of the oracle: histories that are known to be right, damaged on purpose in a way that is known too.

Nothing here asks the checkers what is right. A history is made (or taken from a real run) of which the truth is known by construction;
a *damage* changes the evidence as it lies in the run's folder and says what must now be found: which anomaly of which record. The folder
then goes the way of every run's: through ``streamproof.verdict.judge.judge``. ``make mutate`` counts what was found, and what was not.
"""

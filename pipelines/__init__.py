"""The jobs under test: pipelines, the commit strategies they deliver with, and the driver that runs them.

A pipeline says *what* is computed, a strategy says *how the result and the progress through the source are committed*. That choice
is what loses or doubles records when something dies, so it is the thing this project puts to the test.
"""

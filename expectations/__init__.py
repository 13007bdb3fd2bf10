"""The second opinion on a run, and what people read of it.

A run's evidence is loaded into a small SQLite database and judged by a Great Expectations suite, independently of the verdict that
``delivery`` computed in numpy: two ways to the same answer, and a run in which they differ is an ERROR. The suite's Data Docs and the
run's report are made to be opened from a disk, years later, without a network.

``evidence`` -> ``suite`` -> ``evaluate`` (with ``data_docs``) -> ``report`` (with ``timeline``, ``chart`` and ``vega``). Great Expectations
takes seconds to import: only ``suite`` does it, and ``worker`` does it ahead of time in a process of its own. Altair is imported
when a chart is drawn.

What is known of all runs is the history: ``history`` is a run as a row, ``history_store`` keeps rows; ``history_changes``,
``history_compare`` and ``history_matrix`` are pure functions over rows; ``history_page``, ``history_junit`` and ``history_metrics`` show
them.
"""

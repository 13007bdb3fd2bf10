"""The pages of the plugin (``streamproof.airflow.plugin``), below ``/streamproof/``:

    ``/``                           strategies by faults: how each stands, what changed, how long recovery takes
    ``/cell?strategy=...``          one cell: its runs, one by one
    ``/runs/NAME/report``           a run's report
    ``/runs/NAME/data-docs``        its Data Docs
    ``/runs/NAME/files/...``        all of its folder

Airflow checks nothing before it passes a request on to a plugin's app: ``access`` does. Whoever may see the runs of the DAG
``chaos_experiment`` may look at all of this; there is nothing here that could be started or changed. ``access`` also says what a page may
do in a browser, ``files`` which files are served, ``app`` puts the pages together.
"""

"""Golden predictions: thousands of recorded answers that a refactor must not change.

``python -m benchmarks.golden record`` predicts a fixed sample of jobs, the open step tables, some
sweeps and plans, and writes jobs and answers to one file; ``compare`` runs the jobs of that file
again and prints what has changed. ``jobs`` samples, ``settings`` has the values of options,
``fixed`` the jobs written by hand, ``run`` answers one job, ``record`` and ``compare`` do the rest.
"""

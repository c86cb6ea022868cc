"""Functions over many predictions: sweeps, comparisons, plans, goodput, queues of jobs.

A ``space`` has the axes that vary. ``sweep`` evaluates it piece by piece (``evaluator``), spread
over ``workers`` and kept on disk (``store``, ``parts``, ``output``). ``planner`` searches the
clusters and strategies of a run with a ``goal``: its ``candidates``, the best cuts into stages
(``stage_search``) and chunks, its ``constraints``; ``plan_request`` resolves what was asked.
``goodput`` and ``fleet`` answer for jobs that fail, and for many jobs.
"""

"""Predictions with interval, what-ifs and explanations, and searches over predictions.

``request`` here resolves a job, with searches for what it leaves open (``shares``,
``stages``). ``predict`` answers it: a ``result.Prediction``. ``explain`` and its three files say
how each term came about; ``scaling``, ``sweep``, ``slower`` and ``inference`` answer other
questions; ``views``, ``replay`` and ``pipeline_timeline`` are data for charts and traces.
"""

"""Comparison of predictions with measurements: cases from tables, errors, fits, the report.

``table`` reads a measured table in one of ``formats`` as ``case`` after case, or as the commands
that a user would type; ``judge`` predicts and compares them. ``calibrated``, ``few_rows`` and
``refit`` fit first and judge rows left out; ``ops`` and ``collectives`` judge single kernels and
messages. ``report`` writes it all down.
"""

"""Calibration: op efficiencies from kernel tables, a few parameters from measured steps.

Three fits share the engine's formulas. The shipped figures: ``ops``, ``linear`` and
``experts`` read measured op tables (``tables``) and pool them by device and family (``pooling``).
This machine: ``machine`` runs the benchmarks of ``bench``, fits them and tries the fit on steps;
``job`` times the kernels of one job. Measured steps: ``steps`` fits multipliers to rows of a table,
and ``nccl`` fits links to logs of nccl-tests. ``yaml_text`` writes what came of it.
"""

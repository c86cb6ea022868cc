"""Calibration: op efficiencies from kernel tables, a few parameters from measured steps.

Three fits share the engine's formulas. The shipped figures: ``op_fit`` with its ``op_*`` files,
``linear_fit`` and ``expert_fit`` read measured op tables and pool them by device and family
(``pooling``). This machine: ``machine`` runs the benchmarks of ``bench``, ``machine_profile`` fits
them, and ``machine_check`` tries the fit on steps; ``model_profile`` times the kernels of one job.
Measured steps: ``step_fit`` with its ``step_*`` files fits multipliers to rows of a table, and
``nccl_profile`` fits links to logs of nccl-tests. ``yaml_text`` writes what came of it.
"""

"""Calibration: op efficiencies from kernel tables, a few parameters from measured steps."""

"""Fits: op efficiencies from kernel tables, a few physical parameters from measured steps."""

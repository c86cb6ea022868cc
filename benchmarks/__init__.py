"""Measurements of simcore's own speed: ``python -m benchmarks.NAME --json``."""

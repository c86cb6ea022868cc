"""Predictions held against measurements: cases from tables, errors, fits, the report."""

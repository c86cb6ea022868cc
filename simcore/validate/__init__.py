"""Comparison of predictions with measurements: cases from tables, errors, fits, the report."""

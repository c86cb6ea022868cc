"""Accuracy requirements on the measured tables that closed issues set and that no test checks.

``python -m validate.must_hold`` computes each table once and prints a line for each requirement (a
*clause*): its limit, whether it holds, the figure, and the issue that set it. Run it before an
issue is closed.
"""

"""Predictions with interval, what-ifs and explanations, and searches over predictions."""

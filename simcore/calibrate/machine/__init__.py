"""Calibration of the machine that this runs on, and the test of it by real training."""

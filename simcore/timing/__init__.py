"""Seconds: rates, durations of tasks, the timeline and the step, along the configuration axis."""

"""Runs of nccl-tests: read with their cluster, and fitted to a profile."""

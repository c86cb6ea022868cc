"""Fits of measured expert layers: ``experts.yaml``."""

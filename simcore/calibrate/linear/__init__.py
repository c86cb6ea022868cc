"""Fits of measured kernels of linear attention: ``linear_attention.yaml``."""

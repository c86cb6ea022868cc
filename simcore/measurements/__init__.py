"""Parsers of measurements by other programs; no predictions and no fits.

nccl-tests (``nccl_tests``, ``nccl_json``), PyTorch's profiler (``kineto``), ``nvidia-smi topo``
(``topology_matrix``).
"""

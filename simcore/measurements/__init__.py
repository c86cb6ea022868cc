"""Parsers of measurements by other programs; no predictions and no fits.

nccl-tests (``nccl_tests``), PyTorch's profiler (``kineto``), ``nvidia-smi topo``
(``topology_node``: the matrix, and the node that it shows).
"""

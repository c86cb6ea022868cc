"""Readers of what other programs measured: pure parsers, no prediction and no fit.

nccl-tests (``nccl_tests``, ``nccl_json``), PyTorch's profiler (``kineto``), ``nvidia-smi topo``
(``topology_matrix``).
"""

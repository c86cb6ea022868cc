"""Tracing of any nn.Module into a workload."""

"""Traces of PyTorch's profiler (Kineto's Chrome JSON), read as a stream and taken apart."""

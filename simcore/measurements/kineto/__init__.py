"""Reader of PyTorch profiler traces (Kineto's Chrome JSON), and their breakdown into terms."""

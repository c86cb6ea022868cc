"""Times the kernels of one job's step on this machine."""

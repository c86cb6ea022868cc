"""How a job is spread: parallel strategy, precision, optimizer, offload."""

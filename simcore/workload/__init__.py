"""The computation of a step: ops, blocks, workloads, and the architectures that build them."""

"""What is computed: ops, blocks, workloads, and the architectures that make them."""

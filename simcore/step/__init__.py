"""What each rank computes, sends and holds in one step, derived from workload and strategy."""

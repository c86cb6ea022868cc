"""From workload and strategy to what each rank computes, sends and holds in one step."""

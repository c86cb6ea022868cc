"""Functions over many predictions: sweeps, comparisons, plans, goodput, queues of jobs."""

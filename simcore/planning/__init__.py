"""From one prediction to the best of many: sweeps, comparisons, plans, goodput."""

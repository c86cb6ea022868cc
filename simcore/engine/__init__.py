"""The one engine: a step graph priced over a configuration axis, scheduled in max-plus."""

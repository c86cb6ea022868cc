"""Results as text, JSON, tables, plots and traces. Formats what the engine computed, no more."""

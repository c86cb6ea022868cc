"""Cost formulas: pure functions on arrays, no spec objects, no I/O."""

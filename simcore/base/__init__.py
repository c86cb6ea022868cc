"""Units, errors, registry and database access: what every layer may use."""

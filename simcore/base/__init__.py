"""Units, errors, registries and database access, which every layer may import."""

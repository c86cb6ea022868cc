"""The fit of a few physical parameters to measured steps."""

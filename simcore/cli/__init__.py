"""The command line: reads arguments, calls ``simcore.api``, prints the results."""

"""The command line: reads words, calls ``simcore.api``, shows what it says."""

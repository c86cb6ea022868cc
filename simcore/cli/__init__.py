"""The command line: reads arguments, calls ``simcore.api``, prints the results.

``main`` is the entry point and the table of commands; every command has a file of its name.
``options`` turns the table of a job's options into flags; ``config`` adds defaults from files.
"""

"""Fills the caches when it is imported: the server's processes are forked from one that has."""

from simcore.serve.compute import warm_up

warm_up()

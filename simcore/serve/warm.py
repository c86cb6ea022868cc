"""Fills the caches when it is imported: the server's processes are forked from one that has."""

import gc

from simcore.serve.compute import warm_up

warm_up()
gc.freeze()  # collections of the processes leave alone, and unshared, what all of them have

"""Dry runs: a training script run as one rank of a cluster, without GPUs and without data.

``world``: what torch answers about GPUs and other ranks; ``host``: data loaders, and values that
the host knows; ``meter``: the dispatch mode that records ops, memory and collectives; ``watch``:
calls of the model, of the loss and of optimizers; ``twin``: the model before it was sharded;
``program``: the calls from a batch to its loss, to trace them at another batch size; ``recognise``:
the options of ``simcore predict`` that the script stands for; ``exchanges``: its own collectives;
``described``: a model that transformers configures; ``capture``: all of these together.
``places`` finds where in the script something happened, ``patches`` puts back what was replaced;
``script`` runs a whole file confined in a process of its own. Only these modules import torch.
"""

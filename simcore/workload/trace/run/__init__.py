"""Dry runs: a training script run as one rank of a cluster, without GPUs and without data.

``world``: what torch answers about GPUs and other ranks; ``host``: data loaders, and values that
the host knows; ``meter``: the dispatch mode that records ops, memory and collectives; ``watch``:
calls of the model, of the loss and of optimizers; ``twin``: the model before it was sharded;
``recognise``: the options of ``simcore predict`` that the script stands for; ``capture``: all of
these together. Only these modules import torch.
"""

"""Dry runs of whole scripts, each in a process of its own, which ``api.capture`` starts.

``child``: the process; ``confined``: what it may not do; ``files``: where written files go;
``loaders``: data loaders that read real data; ``libraries``: answers for libraries of scripts;
``refusals``: why a script cannot run dry, in one sentence.
"""

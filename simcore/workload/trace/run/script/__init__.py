"""Dry runs of whole scripts, each in a process of its own, which ``api.capture`` starts.

``child``: the process; ``confined``: what it may not do; ``files``: where written files go;
``finite``: whether results are finite; ``libraries``: answers for libraries; ``refusals``: why a
script cannot run dry, in one sentence.
"""

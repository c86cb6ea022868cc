"""Bytes: the terms of a rank's memory, its peak, and the caching allocator.

``moments`` says which tensors begin and end at each op, and at which moments memory may peak;
``terms`` the bytes then, for whole axes; ``events`` issues the same tensors as allocations, which
``allocator`` replays. ``job`` is the door: the fullest rank of all
stages.
"""

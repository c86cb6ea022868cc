"""Bytes: the terms of a rank's memory, its peak, and the caching allocator.

``walk`` says which tensors begin and end at each op. From it ``moments`` derives the moments at
which memory may peak and ``terms`` the bytes then, for whole axes; ``events`` issues the same
tensors as allocations, which ``allocator`` replays. ``job`` is the door: the fullest rank of all
stages.
"""

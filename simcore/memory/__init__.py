"""Bytes: the terms of a rank's memory, its peak, and the caching allocator."""

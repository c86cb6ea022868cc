"""simcore: time, memory and scaling of a GPU training job, before it starts."""

__version__ = "0.1.0"

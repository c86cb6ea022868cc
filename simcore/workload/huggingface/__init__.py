"""Models from Hugging Face configs (``config.json``), which are read as JSON; no code is executed.

One file per family of models translates the keys of its ``model_type`` into the settings of an
architecture; ``registry.FILES`` maps types to files. Missing keys have the defaults of
transformers 5.
"""

from simcore.workload.huggingface.read import read_config
from simcore.workload.huggingface.registry import model_types

__all__ = ["model_types", "read_config"]

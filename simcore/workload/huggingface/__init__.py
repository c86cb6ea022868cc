"""Hugging Face configs (``config.json``) as models: read as plain JSON, nothing is executed.

One file a family translates the keys of its ``model_type`` into the settings of an architecture;
``FILES`` says which. Defaults of missing keys are those of transformers 5.
"""

from simcore.workload.huggingface.read import read_config
from simcore.workload.huggingface.registry import model_types

__all__ = ["model_types", "read_config"]

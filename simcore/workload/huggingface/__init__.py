"""Models from Hugging Face configs (``config.json``), which are read as JSON; no code is executed.

Records in ``models_db/config_types`` say how the keys of each ``model_type`` become settings of an
architecture (``records``, ``translate``). Missing keys have the defaults of transformers 5.
"""

from simcore.workload.huggingface.read import read_config, with_encoder
from simcore.workload.huggingface.records import class_names, model_types

__all__ = ["class_names", "model_types", "read_config", "with_encoder"]

"""Real training steps beside what simcore predicts: ``python -m validate.on_gpu``."""

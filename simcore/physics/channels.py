"""Batch norms of tensors that are channels first: a channel is a block's, however few there are.

cuDNN's kernels for them (``bn_fw_tr_1C11_kernel_NCHW``, ``bn_bw_1C11_kernel_new``: PyTorch's choice
in training but for channels last, ATen native/cudnn/BatchNorm.cpp) launch one block of 512 threads
a channel. It streams its planes with a few loads in flight, so that 64 channels leave most of a
device's bandwidth idle.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.physics.roofline import FloatArray, FloatLike

#: Clocks that a block takes for an element that it reads or writes, by the width of elements.
#: fp32: 3 passes of 16 x 64 x 256 x 256 take 0.558 ms on H100 (KernelBench); backward of 64, 256
#: and 512 channels takes 5.66, 5.12 and 5.09 passes of a stream on V100 (a TensorFlow profile).
#: 16 bit: all norms of a ResNet-50 at 128 images on A100 (profiles of PyTorch, both layouts).
_CLOCKS: Final = {4.0: 0.27, 2.0: 0.55}


def clocks_per_element(element_bytes: float) -> float:
    """Clocks of a block for an element that it moves."""
    return _CLOCKS.get(element_bytes, _CLOCKS[4.0])


def waves(channels: FloatLike, slots: float) -> FloatArray:
    """How often a device is filled with blocks, of which it holds ``slots``; the last counts whole.

    A wave takes as long as the block of one channel.
    """
    found: FloatArray = np.ceil(np.asarray(channels, dtype=float) / slots)
    return found

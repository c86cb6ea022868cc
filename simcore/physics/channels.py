"""Batch norms of channels-first tensors, whose kernels run one thread block per channel.

cuDNN's kernels for these (``bn_fw_tr_1C11_kernel_NCHW``, ``bn_bw_1C11_kernel_new``; PyTorch chooses
them in training unless tensors are channels last, ATen native/cudnn/BatchNorm.cpp) launch one block
of 512 threads per channel. A block streams its channel with few loads in flight, so that 64
channels leave most of a device's bandwidth idle.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.physics.roofline import FloatArray, FloatLike

#: Clocks of a block per element that it reads or writes, by bytes per element.
#: fp32: 3 passes of 16 x 64 x 256 x 256 take 0.558 ms on H100 (KernelBench); backward of 64, 256
#: and 512 channels takes 5.66, 5.12 and 5.09 passes of a stream on V100 (a TensorFlow profile).
#: 16 bit: all norms of a ResNet-50 at 128 images on A100 (profiles of PyTorch, both layouts).
_CLOCKS: Final = {4.0: 0.27, 2.0: 0.55}


def clocks_per_element(element_bytes: float) -> float:
    """Clocks of a block per element of ``element_bytes`` that it reads or writes."""
    return _CLOCKS.get(element_bytes, _CLOCKS[4.0])


def waves(channels: FloatLike, slots: float) -> FloatArray:
    """Waves of thread blocks, one block per channel, on a device that holds ``slots`` at once.

        ceil(channels / slots)

    Each wave, the last one included, takes as long as the block of one channel.
    """
    n_waves: FloatArray = np.ceil(np.asarray(channels, dtype=float) / slots)
    return n_waves

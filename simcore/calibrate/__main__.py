"""The process of one rank of a calibration or a selftest.

    torchrun --nproc-per-node 8 -m simcore.calibrate --minutes 3 -o profile.yaml

calibrates a node; ``simcore calibrate`` and ``simcore selftest`` start their ranks the same way.
"""

from __future__ import annotations

import sys

from simcore.calibrate.machine.rank import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``python -m simcore``."""

import os
import sys

# Python puts the current folder first on the path: a file there must not stand in for a library.
# It stays where simcore itself is imported from it. (pathlib would be looked for there too.)
try:
    _here = os.getcwd()  # noqa: PTH109
except OSError:  # it was deleted
    _here = ""
_home = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
if __name__ == "__main__" and sys.path[0] == _here != _home and not sys.flags.safe_path:
    del sys.path[0]

from simcore.cli.main import main  # noqa: E402 (with that path)

if __name__ == "__main__":
    main()

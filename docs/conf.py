"""The documentation site: `sphinx-build -W -c docs . build/site`, then open build/site/index.html.

The source folder is the repository, so that a link between two files works on the site and on a
code host alike; what is a page is listed in ``include_patterns``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

# The kernels of the notebooks import this tree too, and leave nothing behind.
os.environ["SIMCORE_TRACE_CACHE"] = "off"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

from simcore import __version__  # noqa: E402

project = "simcore"
author = "the simcore authors"
project_copyright = "Apache-2.0"
version = release = __version__

extensions = [
    "myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton",
    "cli_reference", "notebook_times", "plain_docstrings",
]  # fmt: skip
root_doc = "docs/index"
include_patterns = ["docs/*.md", "notebooks/[0-9]*.md", "validate/REPORT.md", "CHANGELOG.md"]
exclude_patterns = ["build", "dist", ".venv", ".git", "tests"]
source_suffix = {".md": "myst-nb"}
nitpicky = False

# Pages
html_theme = "furo"
html_title = f"simcore {release}"
html_static_path = ["_static"]
html_css_files = ["simcore.css"]
html_extra_path = ["_root"]  # index.html, which leads to docs/index.html, and llms.txt
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
copybutton_prompt_text = "$ "  # of a command and its output, the command is copied
smartquotes = False  # two hyphens are an option, not a dash

# Notebooks: run once, here, and from nothing; one that fails (notebook_times logs what each takes)
# fails the build. The timeout is a cell's, and only ends what hangs.
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_ipywidgets_js = {}  # would come from another site; a page without a kernel has no use for it

# Reference of the Python interface
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
python_display_short_literal_types = True
python_maximum_signature_line_length = 88

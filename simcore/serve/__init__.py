"""``simcore serve``: a local web page and its JSON API, which call ``simcore.api``.

Needs the extra ``serve`` (FastAPI, uvicorn, limits). No module that predicts imports this package.
"""

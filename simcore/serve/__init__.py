"""``simcore serve``: a local web page and its JSON API over ``simcore.api``; computes nothing.

Needs the extra ``serve`` (FastAPI, uvicorn, limits). Nothing that predicts imports it.
"""

"""`uvicorn espalier.server.main:app`: the whole server. Importing it reads the settings and loads no model."""

from espalier.server.missing import one_line

with one_line():
    from espalier.server.apps import create_app

app = create_app()

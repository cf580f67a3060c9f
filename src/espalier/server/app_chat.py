"""`uvicorn espalier.server.app_chat:app --workers 4`: the server without batch jobs. Importing it loads no model."""

from espalier.server.missing import one_line

with one_line():
    from espalier.server.apps import create_chat_app

app = create_chat_app()

"""`uvicorn espalier.server.app_batch:app --port 8011`: batch jobs alone. Importing it loads no model."""

from espalier.server.missing import one_line

with one_line():
    from espalier.server.apps import create_batch_app

app = create_batch_app()

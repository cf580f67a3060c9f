"""Run by Alembic for every migration. `store/migrate.py` hands in the connection, in a transaction already."""

from alembic import context

context.configure(**context.config.attributes["configure"])
with context.begin_transaction():
    context.run_migrations()

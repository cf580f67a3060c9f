"""Alembic runs this for every migration. `store/migrate.py` passes the connection, which is in a transaction."""

from alembic import context

context.configure(**context.config.attributes["configure"])
with context.begin_transaction():
    context.run_migrations()

"""What alembic runs: the migrations, in the transaction that the caller began."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()

"""Last uses of tokens, seconds in the audit log, and the work of an asker.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds a table, a column and an index."""
    op.create_table(
        "token_uses",
        sa.Column("token", sa.String(64), primary_key=True),
        sa.Column("used", sa.Float, nullable=False),
    )
    op.add_column("audit", sa.Column("seconds", sa.Float))
    op.create_index("jobs_asker", "jobs", ["asker", "ended"])

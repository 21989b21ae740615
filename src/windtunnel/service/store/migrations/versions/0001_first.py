"""The first tables: jobs, active questions, counters, answers, audit.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("number", ID, nullable=False, unique=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("verb", sa.String(64), nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("asker", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("short", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(64)),
        sa.Column("lease_until", sa.Float),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("crashes", sa.Integer, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("completions", sa.Integer, nullable=False),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("progress", sa.Float),
        sa.Column("doing", sa.Text),
        sa.Column("log", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("ended", sa.Float),
    )
    op.create_index("jobs_waiting", "jobs", ["state", "short", "number"])
    op.create_index("jobs_key", "jobs", ["key"])
    op.create_table("active", sa.Column("key", sa.String(64), primary_key=True), sa.Column("job", sa.String(32), nullable=False))
    op.create_table("counters", sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", ID, nullable=False))
    op.create_table(
        "answers",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("verb", sa.String(64), nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("body", sa.String(64), nullable=False),
        sa.Column("media", sa.String(64), nullable=False),
        sa.Column("artefacts", sa.Text, nullable=False),
        sa.Column("log", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("bytes", ID, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("used", sa.Float, nullable=False),
    )
    op.create_index("answers_used", "answers", ["used"])
    op.create_table(
        "audit",
        sa.Column("number", ID, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("what", sa.String(200), nullable=False),
        sa.Column("came_from", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
    )
    op.create_index("audit_at", "audit", ["at"])
    op.execute("insert into counters (name, value) values ('jobs', 0)")

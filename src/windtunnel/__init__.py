"""A wind tunnel for LLM-training clusters."""

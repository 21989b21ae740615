"""Published measurements as tables, and facts about their publications."""

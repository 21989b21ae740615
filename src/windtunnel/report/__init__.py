"""What people look at: a prediction in the terminal, as JSON, as a timeline, as a page, beside another one."""

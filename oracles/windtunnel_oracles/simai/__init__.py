"""SimAI's analytical arithmetic: its bus bandwidths, its times of calls, and the table that it prints."""

"""What the service keeps: a queue of jobs, answers, an audit log, in a database; bytes in files under the hash of their content."""

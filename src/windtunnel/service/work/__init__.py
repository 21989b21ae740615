"""Work of the service: a worker claims jobs and answers each in a process of its own, which is confined."""

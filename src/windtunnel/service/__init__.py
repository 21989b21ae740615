"""`windtunnel serve`: every verb as an endpoint, a queue of jobs, workers, kept answers, and the client; see docs/service.md."""

"""HTTP of the service: who may ask, what an answer looks like, and the description of both."""

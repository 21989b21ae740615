"""Questions of the service: which verbs are offered, what a request may say, and the command line that it stands for."""

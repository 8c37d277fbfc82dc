"""Stage (e): settings compared in trials, each of which reads the same documents in a process of its own."""

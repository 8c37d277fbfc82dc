"""The acceptance run: whether this worker reads as the official model does, on the machine and weights of a user."""

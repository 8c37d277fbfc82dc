"""What a run in this process shows on a terminal or writes as lines."""

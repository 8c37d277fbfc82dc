"""`twopass serve`: jobs over HTTP, and one page for people."""

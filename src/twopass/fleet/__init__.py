"""Read many documents through one endpoint; `twopass submit` is built on this."""

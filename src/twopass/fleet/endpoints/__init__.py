"""The endpoints that a campaign can send jobs to."""

"""Where sources come from and artefacts go: S3, folders, https, memory."""

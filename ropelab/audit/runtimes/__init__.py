"""What serving and training codes make of a configuration: one reader per runtime."""

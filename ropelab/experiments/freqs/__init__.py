"""What each frequency pair does, before and after scaling."""

"""What policies share, and what makes them fast."""

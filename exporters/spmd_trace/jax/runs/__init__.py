"""Scripts and calls that run: recorded as they go, and on one device against all."""

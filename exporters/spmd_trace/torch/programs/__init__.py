"""Training programs that come with the recorder; their frames count as user code."""

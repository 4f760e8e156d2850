"""Which numbers of a program are sizes of axes."""

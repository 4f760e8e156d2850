"""What cannot be recorded."""


class Unrecordable(Exception):
    """The program has something that a trace cannot say."""

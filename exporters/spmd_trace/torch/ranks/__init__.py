"""What is another on another rank: sizes of groups, parts that a rank takes for itself, other
numbers and operations."""

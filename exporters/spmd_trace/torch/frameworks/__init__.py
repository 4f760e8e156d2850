"""What the recorder needs to know about particular frameworks."""

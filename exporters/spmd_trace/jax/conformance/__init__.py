"""The checker compared with JAX: small functions with operands of every state, and where the
verdicts differ."""

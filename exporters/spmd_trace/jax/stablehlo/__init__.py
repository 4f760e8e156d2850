"""Modules of StableHLO, which JAX lowers a jitted function to."""

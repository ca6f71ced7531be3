"""Downstream: what a run has found out becomes what people use."""

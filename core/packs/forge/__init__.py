"""Forge: a feature from its request to reviewed code. What is better done by Python than by a model."""

"""Fovea: fused attention whose scores are modified by a formula."""

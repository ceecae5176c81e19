"""Instruments and models on top of the core; each domain stands alone."""

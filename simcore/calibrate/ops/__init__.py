"""Fits of published op tables and of cards: the figures of the profile ``blind``."""

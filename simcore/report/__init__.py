"""Predictions as text, JSON, traces and tables: shows what the engine found, computes nothing."""

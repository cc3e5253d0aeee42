"""Tests of the checker: histories that are made up, each with one thing wrong, and a short run of the real thing."""

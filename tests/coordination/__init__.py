"""Tests of the metadata tree, its store and cache, and the controller."""

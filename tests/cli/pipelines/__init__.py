"""Tests of what the jobs take on the command line."""

"""Tests of what the benchmark measures with: a wrong generator would make every figure wrong."""

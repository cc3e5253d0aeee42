"""The broker keeps its promises: under kill -9, under a power cut, and when the disk fails."""

"""Faults as they happen: processes that are killed, disks that are full, folders that can not be written to."""

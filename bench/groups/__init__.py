"""The loads of the section `groups`: members that join, offsets that are committed, and transactions."""

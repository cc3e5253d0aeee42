"""Sockets: listeners, connections, and the order in which a broker starts and stops."""

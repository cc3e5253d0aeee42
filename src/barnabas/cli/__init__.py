"""What people type: one module a command, none of which is imported before it is asked for."""

"""What the cluster knows of itself: a tree of small durable nodes, a typed view of it, and its controller."""

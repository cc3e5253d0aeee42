"""What the section spark needs: the queries that are compared, and the memory of those who run them."""

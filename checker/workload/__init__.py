"""The clients that load a broker, and write down everything they ask for and everything they are told."""

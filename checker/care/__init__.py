"""The long run: topics that are compacted, retained, cut and deleted, while the broker is restarted and measured."""

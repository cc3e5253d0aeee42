"""One module a family of APIs; each handler opens with its versions, its behaviour and where it differs from Kafka."""

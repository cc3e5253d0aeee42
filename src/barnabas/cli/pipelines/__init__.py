"""One module a job: what `barnabas pipeline JOB` takes, and how that becomes a call of the job's function."""

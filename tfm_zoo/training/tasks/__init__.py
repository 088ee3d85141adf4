"""The tasks: each file has the options of one, its data, its model, its metrics, and how a run of it is prepared."""

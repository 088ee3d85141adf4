"""The families of the zoo: which Auto class loads which class, and published sizes by name."""

"""The files that measurements leave: where they were made, and their form. Knows nothing of what is measured."""

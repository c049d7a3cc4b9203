"""An app of the project, with tasks and the commands that send and run them."""

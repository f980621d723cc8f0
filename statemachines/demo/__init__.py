"""The demo: the main job end to end, on a text file or folder of the user's, with a verdict at the end."""

"""Small worlds, explored to the end: every order in which their control frames can arrive."""

"""Communication as torch programs write it: groups of ranks on a mesh, collectives, messages, typed
transitions."""

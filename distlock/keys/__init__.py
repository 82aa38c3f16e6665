"""Names of locks in the code, and of nodes on the server."""

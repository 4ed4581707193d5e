"""The run process: the loop, the journal's writer, the socket; and the client that viewers use (`client`)."""

"""Builds replies of `/v1/messages`: whole messages, the events of a stream, errors. It waits for nothing."""

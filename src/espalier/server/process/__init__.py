"""What one server process holds, and how routes reach it: settings, engine, gate, worker threads."""

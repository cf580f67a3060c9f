CREATE TABLE espalier_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT espalier_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE leases (
	name VARCHAR(64) NOT NULL,
	holder VARCHAR(64) NOT NULL,
	until DOUBLE NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE rates (
	name VARCHAR(64) NOT NULL,
	full_at DOUBLE NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE slots (
	holder VARCHAR(64) NOT NULL,
	name VARCHAR(64) NOT NULL,
	held INTEGER NOT NULL,
	until DOUBLE NOT NULL,
	PRIMARY KEY (holder)
);
CREATE INDEX slots_by_name ON slots (name);
CREATE TABLE batch_files (
	id VARCHAR(40) NOT NULL,
	created DOUBLE NOT NULL,
	caller TEXT NOT NULL,
	filename TEXT NOT NULL,
	purpose TEXT NOT NULL,
	bytes DOUBLE NOT NULL,
	expires DOUBLE,
	batch_id VARCHAR(40),
	PRIMARY KEY (id)
);
CREATE TABLE batches (
	id VARCHAR(40) NOT NULL,
	created DOUBLE NOT NULL,
	caller TEXT NOT NULL,
	kind VARCHAR(16) NOT NULL,
	endpoint TEXT NOT NULL,
	input_file VARCHAR(40) NOT NULL,
	state VARCHAR(16) NOT NULL,
	priority INTEGER NOT NULL,
	paused BOOLEAN NOT NULL,
	expires DOUBLE,
	total INTEGER NOT NULL,
	"plan" BLOB NOT NULL,
	errors BLOB,
	usage BLOB,
	model TEXT,
	output_file VARCHAR(40),
	error_file VARCHAR(40),
	validating_at DOUBLE,
	failed_at DOUBLE,
	in_progress_at DOUBLE,
	finalizing_at DOUBLE,
	completed_at DOUBLE,
	expired_at DOUBLE,
	cancelling_at DOUBLE,
	cancelled_at DOUBLE,
	holder VARCHAR(64),
	until DOUBLE,
	fence INTEGER NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE batch_items (
	batch_id VARCHAR(40) NOT NULL,
	line INTEGER NOT NULL,
	custom_id TEXT NOT NULL,
	state VARCHAR(16) NOT NULL,
	body BLOB NOT NULL,
	size INTEGER NOT NULL,
	attempts INTEGER NOT NULL,
	losses INTEGER NOT NULL,
	not_before DOUBLE NOT NULL,
	holder VARCHAR(64),
	until DOUBLE,
	fence INTEGER NOT NULL,
	PRIMARY KEY (batch_id, line)
);
CREATE TABLE batch_attempts (
	batch_id VARCHAR(40) NOT NULL,
	line INTEGER NOT NULL,
	fence INTEGER NOT NULL,
	worker VARCHAR(64) NOT NULL,
	began DOUBLE NOT NULL,
	ended DOUBLE,
	outcome VARCHAR(16),
	PRIMARY KEY (batch_id, line, fence)
);
CREATE TABLE batch_results (
	batch_id VARCHAR(40) NOT NULL,
	line INTEGER NOT NULL,
	created DOUBLE NOT NULL,
	good BOOLEAN NOT NULL,
	answer BLOB NOT NULL,
	figures BLOB,
	prompt_tokens INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	valid BOOLEAN,
	trace_id VARCHAR(40),
	PRIMARY KEY (batch_id, line)
);
CREATE INDEX batch_files_by_caller ON batch_files (caller, id);
CREATE INDEX batch_files_by_batch ON batch_files (batch_id);
CREATE INDEX batches_by_caller ON batches (caller, id);
CREATE INDEX batches_by_state ON batches (state, priority, id);
CREATE INDEX batch_items_by_state ON batch_items (batch_id, state, line);
CREATE INDEX batch_items_by_holder ON batch_items (holder);
CREATE TABLE logit_test_runs (
	id VARCHAR(40) NOT NULL,
	created DOUBLE NOT NULL,
	model TEXT NOT NULL,
	preset TEXT,
	strategy TEXT,
	cases INTEGER NOT NULL,
	cases_passed INTEGER NOT NULL,
	iterations INTEGER NOT NULL,
	iterations_passed INTEGER NOT NULL,
	error_count INTEGER NOT NULL,
	seconds DOUBLE NOT NULL,
	body BLOB NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE generation_logs (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	id VARCHAR(40) NOT NULL,
	created DOUBLE NOT NULL,
	request_id TEXT NOT NULL,
	caller TEXT NOT NULL,
	route TEXT,
	model TEXT NOT NULL,
	engine TEXT,
	strategy TEXT,
	constraint_kind TEXT,
	streamed BOOLEAN,
	prompt_tokens INTEGER,
	completion_tokens INTEGER,
	tax_nats DOUBLE,
	removed_mass DOUBLE,
	rejection_rate DOUBLE,
	queued DOUBLE,
	to_first_token DOUBLE,
	total DOUBLE,
	finish_reason TEXT,
	valid BOOLEAN,
	error TEXT,
	trace_id VARCHAR(40),
	request BLOB,
	content BLOB,
	words TEXT NOT NULL
);
CREATE UNIQUE INDEX generation_logs_by_id ON generation_logs (id);
CREATE INDEX generation_logs_by_caller ON generation_logs (caller, id);
CREATE INDEX generation_logs_by_model ON generation_logs (model, id);
CREATE VIRTUAL TABLE generation_logs_search
          USING fts5(words, content='generation_logs', content_rowid='number', tokenize='ascii');
CREATE TABLE responses (
	id VARCHAR(40) NOT NULL,
	created DOUBLE NOT NULL,
	caller TEXT NOT NULL,
	body BLOB NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE logit_presets (
	name TEXT NOT NULL,
	created DOUBLE NOT NULL,
	updated DOUBLE NOT NULL,
	description TEXT NOT NULL,
	body BLOB NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE vocab_cache (
	fingerprint TEXT NOT NULL,
	created DOUBLE NOT NULL,
	used DOUBLE NOT NULL,
	name TEXT NOT NULL,
	width INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	body BLOB NOT NULL,
	PRIMARY KEY (fingerprint)
);
CREATE TABLE "traces" (
	id VARCHAR(40) NOT NULL,
	created DOUBLE NOT NULL,
	request_id TEXT NOT NULL,
	caller TEXT NOT NULL,
	output_index INTEGER NOT NULL,
	route TEXT,
	model TEXT NOT NULL,
	strategy TEXT NOT NULL,
	constraint_kind TEXT,
	finish_reason TEXT NOT NULL,
	valid BOOLEAN,
	tokens INTEGER NOT NULL,
	tax_nats DOUBLE,
	removed_mass DOUBLE,
	rejected_steps INTEGER,
	changed_steps INTEGER,
	unknown_steps INTEGER,
	bounded_steps INTEGER,
	body BLOB NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX traces_by_caller ON traces (caller, id);
INSERT INTO espalier_version VALUES ('0012');
INSERT INTO leases VALUES ('retention', '', 0.0);

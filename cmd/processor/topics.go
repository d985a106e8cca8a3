package main

import (
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
)

// topics are the parts of the help that say how tasks and outcomes travel.
func topics() []*cobra.Command {
	return []*cobra.Command{
		cli.Topic("exec", "What --exec and --exec-each tell a command, and it answers", aboutExec),
		cli.Topic("http", "What --http asks an endpoint, and it answers", aboutHTTP),
		cli.Topic("out", "What --out writes", aboutOut),
		cli.Topic("count", "What --count-by counts", aboutCount),
	}
}

const aboutExec = `--exec CMD starts long-lived children (one a core, see --children). A child reads
one JSON line a task on its standard input,
  {"seq":1,"run":"0a..","segment":5,"n":17,"key":"Oslo","id":"","epoch":3,"attempt":1,"body":{...}}
and prints one line for it on its standard output before it gets the next one:
  {"seq":1,"ok":true}                      done; may carry "result": any JSON value
  {"seq":1,"retry":"30s","error":"..."}    again after that time, as an attempt
  {"seq":1,"busy":"2s","error":"..."}      not now: no attempt, and fewer tasks are started
  {"seq":1,"reject":true,"error":"..."}    never: quarantined at once
  {"seq":1,"error":"..."}                  failed: again with growing delay
seq is the task's own and must be given back. epoch grows with each new owner of
the segment: a store can refuse a smaller one than it has seen. The body is JSON if it is JSON,
else a string, else "bodyBase64"; the key is "key" or "keyBase64". A task that is
traced has "traceparent", and "tracestate" if there is one. A line may have 1 MiB.
The child should end when its input does. A child that dies, prints anything else or
takes longer than --task-timeout is killed with all its children and replaced, and its
task is tried again. The first task of a new child has 20 s more, for the start of the child.

With --batch N a child reads up to N lines at once. "left" in each is how many of its
batch are still to come: at 0 the batch is whole. The child prints one line a task, in
any order, before it gets more; --task-timeout is for all. A line that is not an outcome
fails the task of its seq, and no other. If the child dies, hangs or prints a seq that it
has not been given, the outcomes that are there count, and the other tasks are given once
more, each alone, without an attempt.

--exec-each CMD starts a process for each task. The body is its standard input;
QUEUEPUMP_TASK_RUN, _SEGMENT, _N, _KEY (or _KEY_BASE64), _ID, _EPOCH and _ATTEMPT are
in its environment, and TRACEPARENT and TRACESTATE of a task that is traced. Its exit
status is the outcome: 0 done, 65 rejected, 75 again in 30 s, anything else failed. Its
standard output is the result.

A command's words are split as by a shell, but no shell runs: for pipes and
variables write sh -c '...'. Commands do not get the environment variables that
the configuration refers to, that give flags or that are credentials for Azure;
see --keep-env. What they print on standard error goes to the log.`

const aboutHTTP = `--http URL posts the body of a task, with Queuepump-Run, -Segment, -N, -Key,
-Id, -Epoch, -Attempt and Idempotency-Key as headers. 2xx is done, and the answer's body
the result; 410, 413, 415 and 422 reject; anything else fails. 429 and 503 say "not now", unless
few of the last tasks were told so: they take no attempt, and fewer tasks are started.
Retry-After is honoured with 408, 425, 429 and 5xx, within --retry-max. Redirects are not
followed. While no connection can be made tasks wait, and lose no attempt.

--http-header 'Name: value' adds a header; ${VAR} in it is taken from the environment.`

const aboutOut = `--out FILE appends a JSON line for each task: run, segment, n, key, id, body,
attempt, or with a command or URL its result in the place of the body. A
message is only settled when its lines are on disk.`

const aboutCount = `--count-by FIELD counts tasks by a field of their bodies, which are JSON (rows
of CSV are), and with --sum FIELD adds up another one; "distributor counts" shows
what it came to. Fields are named as in "distributor run --key". A value is
counted as it is written, up to 1 KiB, and is a text, a number or a boolean. What is
summed is a number or a text that is one, and sums are exact: no digit is
rounded off (of numbers of up to 100 characters, from 1e-100 to 1e100). A task that lacks one
of the two fields is rejected, with a cause that names the field. The counts are stored
beside the record of what is done: with "delivery: once" in the configuration each
task is in them exactly once, whatever dies; otherwise one that is delivered twice
is counted twice. All processors of the workload count by the same fields.
A segment's counts may take 1 MiB, compressed.`

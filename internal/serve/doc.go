// Package serve takes tasks over HTTP, for programs in any language, and hands them to a
// [distributor.Sender]. A post is answered when the accounts have acknowledged its tasks.
//
// # POST /v1/tasks
//
// The body is lines of JSON, each a task; blank lines are passed over. A body of Content-Type
// application/json is one task, whatever lines it has. It must not be an array: whether that would
// be one task or many cannot be known, so it is refused with the way out. Key and id of a task are
// fields of it, as the server's flags say. The body of the task is the text as it was posted.
//
//	200  all tasks are in queues: {"tasks": 2}, and "again": true if the key was known
//	207  some are not known to be: {"tasks": 1, "outcomes": [{"line": 2, "error": "..."}]}
//	400  a line cannot be a task; nothing was sent: {"error", "fix", "line", "field"}
//	401, 403  the token is wrong, or not for sending
//	409  the run of the tasks that were sent under the key has ended
//	413  the body, or one task, is too large; nothing was sent
//	415  the type of the body is none of these
//	422  the key was given before, with other tasks; nothing was sent
//	429  as much waits for the accounts as may, or too many posts with keys come
//	503  the server ends, or the accounts do not take tasks now
//
// With 429 and 503 Retry-After says when to post again. A post with an Idempotency-Key may be made
// again, to any server of the workload. After 207, 503 or no answer it is made again with the same
// key and the same body. Without a key the tasks of a repeat are other tasks. The traceparent of a
// request goes into its tasks.
//
// # Bounds
//
// No client is trusted with memory or time. All bodies together have Options.Bytes, and so has what
// is kept of each of their tasks. The part of a body beyond 64 KiB is taken from half of that until
// the body is complete, so large bodies that do not come to an end leave room for small ones. The
// first 64 KiB must come within 5 s, and all of it within 20 s.
package serve

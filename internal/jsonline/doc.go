// Package jsonline checks lines of JSON and finds fields in them.
//
// A line is checked and its fields are found in one pass, without decoding it into maps: on lines
// of 130 bytes that is several times faster than encoding/json, which would otherwise cost the
// distributor more than the compression does, and the processor more than all else when it writes
// results into a file. tidwall/gjson, which checks and then looks for each field, takes 1.9 to 4
// times as long for two fields of such a line (0.8 to 1.3 µs here, AMD EPYC, go1.26.8): a
// microsecond more where the distributor spends 1.5 on a task. Valid JSON is exactly as
// encoding/json says; the fuzz target compares the two.
//
// # Foreign
//
// Foreign reads messages that other programs put: their task, and its key.
//
// # What the task is
//
// foreign.encoding says what the body is. "auto" decodes base64 of JSON, and base64 of gzip of JSON
// (of up to MaxUnpacked), unless the text is JSON by itself: producers of Functions and of older
// SDKs encode, today's do not, and both may put into one queue. A word may be base64 by chance
// (abcd), but hardly base64 of JSON. "base64" decodes all base64, "text" nothing. No text is
// refused: a text that cannot be decoded is taken as it is, and the handler rejects it. The driver
// has undone the escapes of XML before.
//
// # Its segment and identity
//
// The segment is the hash of the key, a field of the JSON (foreign.key), or of the text without
// that field. With every encoding the key is looked for in what "auto" would decode, so processors
// with different files agree on it. The key is pinned in the workload's row: with another key a
// message that was done, but whose delete was lost, would be in a segment whose ledger does not
// know it. The encoding may change at any time.
//
// The identity is QUEUE/MESSAGEID, a name of the ledger: the service makes the id, a GUID, and no
// second message gets it. Two puts by the producer are two tasks.
//
// # Foreign queues
//
// A foreign queue is a shard of the map in a state of its own. It is never the home or a choice of
// a segment. Its one sweeper alone polls it: the sweeper works on messages of its own segments
// there, and brings each other message home with a put and a delete (P6.4). *If foreign queues were
// homes, n-1 of n processors on average would put each message back before its owner had it.* So
// one foreign queue feeds all accounts and processors, with the 1,000 messages a second that a get
// and a delete leave of its limit.
//
//   - No process makes a foreign queue, puts into it or deletes it. Only a retry replaces a message
//     there, with an envelope.
//   - A message that was brought home and whose delete was lost is brought home again. Its name
//     must be known then, so names go by age only as far as the foreign queues are read: their
//     readers say so in their beats (UnreadForeign). Ends of runs do not wait for foreign queues.
//   - The sweeper has a share of the other queues' limits as a member that puts (P8.1).
//   - The copy at home has dequeue counts of its own (P4.2). A message that ends its process is
//     found there.
package jsonline

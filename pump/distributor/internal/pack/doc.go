// Package pack makes messages of records: it numbers each task in its segment, collects the tasks
// of a segment in an envelope, seals the envelope, and knows up to which record all is
// acknowledged.
//
// A [Segmenter] reads the source and gives tasks to [Lane]s. A lane's [Packer] fills envelopes and
// emits [Message]s. A [Tracker] counts, for each interval between two barriers, the messages that
// are not acknowledged. The [Checkpointer] saves the newest barrier whose earlier messages are all
// acknowledged (P2).
//
// # Barriers
//
// The reader takes a barrier between two records ([Segmenter]: cursor and counters copied together)
// and puts it into every lane behind the tasks before it. It hands the barrier over before it waits
// for anything. Barriers cut the run into intervals. Each interval counts the envelopes and bad
// lines whose first task was read in it and that are not acknowledged, and the lanes that have not
// passed its end. A barrier is complete when all intervals before it are at zero. So the work is
// per envelope, an envelope that reaches over barriers holds back only those behind its first task,
// and the order of acknowledgements does not matter.
//
// The Checkpointer wants a barrier each second. It forces barriers older than 10 s, or all when
// half of the cap on unsaved work is read. A checkpoint is a version byte, the bad lines, the
// counters as varints, and the cursor.
//
// # Packing
//
// A lane gets a batch when the batch is 256 KiB or 2,048 tasks, before the reader waits for
// anything, and 5 ms after the last batch if the source is files. An envelope is compressed in ten
// to twenty chunks, each when storing the waiting bytes would no longer surely fit. It is full when
// less than 1/32 is free. A lane groups its tasks by segment if there are two of each or more,
// because an open envelope has left the caches when its turn comes. A new envelope holds the tasks
// that its owner handles in 5 s: a member's row has its pace.
package pack

// Package pack makes messages of records: it numbers each task in its segment, collects the tasks
// of a segment in an envelope, seals that, and knows up to where all is acknowledged.
//
// A [Segmenter] reads the source and gives tasks to [Lane]s. A lane's [Packer] fills envelopes and
// emits [Message]s. A [Tracker] counts, for each interval between two barriers, the messages that
// are not acknowledged. The [Checkpointer] saves the newest barrier before which none is left (P2).
package pack

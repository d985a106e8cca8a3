// Package shardmap says where tasks go: which segment a key belongs to, and which shard (one queue
// of one storage account) is the home of each segment.
//
// It is pure: no I/O, no clock, no randomness, and the same result on every machine and
// architecture, so placement can be tested by properties.
//
// # Segment
//
// The segment of a key is xxhash64(key) mod S ([Segment]). S is a multiple of 64, pinned when a
// workload is created and never changed, because another S would give every task another identity.
// The hash is pinned by golden vectors.
//
// # Placement
//
// Each segment has one home among the active shards. The placement is weighted rendezvous hashing
// with bounded load: each pair of segment and shard has a cost drawn from a hash and divided by the
// shard's weight; pairs are taken cheapest first, and a shard that is full takes no more. A shard's
// load is its weighted share of S rounded down or up, never more and never less. Plain rendezvous
// leaves the fullest of 100 shards with several times its share at small S, and the fullest shard
// is what limits throughput.
//
// # Is the map a function of the shard list?
//
// [New] is: the same set of shards, in any order, gives the same homes. [Map.Change] is not: it
// starts from the homes of the previous map and moves no segment that can stay, which is the least
// number of moves. With bounded load a pure function cannot do that: one added shard shifts every
// shard's bound, and each segment that is pushed out pushes out another. Two histories that end in
// the same shard list may therefore differ in their homes. That is safe because no process ever
// computes a map from a shard list to agree with another: the map in the workload's row is the
// truth, it carries every home explicitly ([Map.MarshalBinary]) and is replaced only by
// compare-and-swap with Version + 1. A reader of version v sees exactly the homes that the writer
// of v chose.
//
// Segments to move are chosen by the same costs, so that the homes stay near to what rendezvous
// alone would choose, and a shard that is drained and comes back gets many of its old segments
// again.
//
// # Ownership
//
// Which process handles which segment is another question: [Map.Plan] shares whole queues among the
// live instances, or single segments if there are more instances than queues, from what each has
// now. All members compute it from what they read and carry out their own part of it.
package shardmap

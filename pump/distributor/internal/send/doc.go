// Package send brings sealed messages into their queues, until each is acknowledged.
//
// A message goes this way. [Putter.Send] takes it over and asks the [Router] where its segment's
// messages go now (route.go). It waits in the [Sink] of that queue (sink.go). A worker puts it
// again and again (put.go; judge.go says what follows from a failed put), until it is acknowledged.
// When the map, a mark or the health of a queue (health.go) changes meanwhile, so that its
// segment's messages have to go elsewhere, it moves to another sink.
//
// A [Follower] keeps the map young and has the marks stored that must stand before a message goes
// to another queue than its home (P6.3, P6.5).
//
// # Spill
//
//   - A home is dark if nothing was acknowledged for 5 s and two puts were not answered or one was
//     turned down (credential, missing queue, disabled account), or after 30 s of nothing but
//     throttles, or if its sink is busy and it has answered nothing for 5 s. A dark home gets one
//     probe, a real message, about every 5 s. The first acknowledged probe brings its messages back
//     to it. A queue that is dark again within a minute is held down for 15 s, doubling up to 5
//     min.
//   - A sink is busy if as many messages are in flight as may be. A home is at its limit if it is
//     busy for 5 s, throttled after that, and throttled within the last 30 s. A message that would
//     wait there, or was refused four times, goes to the first marked choice that is not busy, or
//     else to where the fewest wait. Each second what waits is given another sink ([Putter.Watch]).
//     A full sink is too late a sign: what waits in two slow queues for 8 s is all the memory that
//     messages may take.
//   - A distributor puts nothing into another queue before the mark is acknowledged or seen in a
//     look. Owners take marks back; a distributor marks again if it still needs to.
//
// # Under way
//
// Puts, gets and deletes under way follow from rate times latency, times two (Little's law); the
// latency is that of the quickest of the last 64 to 128. Puts are 16 to 256 and deletes 32 to 256 a
// queue, gets 4 to 16 a queue and 16 to 64 an account.
//
// Sealed and unacknowledged messages take 48 MiB together, or 96 KiB a queue beyond 512 queues.
// Each message counts its buffer, and its text again or 2 KiB if that is more. An account holds at
// most the larger of a quarter and its even share, and its even share if it has acknowledged
// nothing for a second (share.go). A sink is full, and the lane waits, if what waits there takes 8
// s of the queue's budget. Both bounds change, so a sink is a list under a lock and not a channel.
// After four requests without an answer deadlines are 3 s.
//
// # Nudges
//
// A distributor nudges with its first put into a queue after a second without a put there for that
// owner (P8.2). By then a processor's next look is up to half a second off.
package send

// Package leases says for how long messages are hidden while they are in hand, and when failed
// tasks are tried again ([Timing]).
//
// # The lease in numbers
//
// A user may fix how long leases are. Otherwise they follow the work, in whole seconds:
//
//	before anything was measured   1 minute ([FirstLease])
//	then                           15/4 of what 95 % of the latest messages took
//	while a task lasts             renewed for 15/4 of what it has taken, if that is longer
//	always                         30 seconds ([LeastLease]) to 5 minutes ([MostLease])
//
// What a message takes is measured from the get that brought it until it was settled, and so with
// its wait for a handler. Half of the counts is forgotten in a minute, or in eight times the time
// of the slowest messages if that is longer ([Spans]). A bucket is a fifth wide, and so are the
// steps in which leases change.
//
// The parts of a lease are those that package message has: it is renewed after 4 to 5 fifteenths (a
// third, less up to a fifth of that, so that the messages of one get do not come at once), a
// renewal that is not answered within a sixth is tried again, and the last sixth belongs to
// settling. A message settled within the first 4 fifteenths needs no renewal: hence 15/4. A lease
// counts from when its get or renewal was sent, because the service cannot have hidden the message
// before.
package leases

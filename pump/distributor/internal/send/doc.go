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
package send

// Package send brings sealed messages into the queues that they belong in, until each is acknowledged.
//
// The way of a message: [Putter.Send] takes it over and asks the [Router] where its segment's messages
// go now (route.go), it waits in the [Sink] of that queue (sink.go), a worker puts it again and
// again (put.go; judge.go says what follows from a failed put), and it is acknowledged. If its
// segment's messages have to go elsewhere meanwhile, because the map, a mark or the health of a
// queue (health.go) is another, it moves to another sink.
//
// A [Follower] keeps the map young and has the marks stored that must stand before a message goes
// to another queue than its home (P6.3, P6.5).
package send

// Package pumptest tests a handler with the pump itself, in virtual time: a real sender and a real
// processor work on a simulated account within the process, and hours take a moment.
//
// [New] is called inside of synctest.Test. [World.Send] sends tasks, [World.Advance] lets time
// pass, and [World.Step] lets it pass up to the next outcome. [World.Done], [World.Retried] and
// [World.Quarantined] say what is expected. If it is not so, the test fails and shows the last
// outcome of each task.
//
// Virtual time passes only while all goroutines of the test wait for time, for each other or for
// the pump. While a handler waits for something outside, as a network, the clock stands still.
package pumptest

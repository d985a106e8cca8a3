// Package waits is how a process waits. It spreads what many processes do out over time: delays
// that double, jitter from a hash of the delay's purpose instead of a random number, waits that end
// with a context, signals between goroutines, the rounds of loops, the grace of a stop, and a clock
// for machines that may be suspended.
package waits

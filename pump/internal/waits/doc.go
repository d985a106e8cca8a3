// Package backoff spreads what many processes do out over time: delays that double, jitter from a
// hash of the delay's purpose instead of a random number, waits that end with a context, and
// signals between goroutines.
//
// In simulations it also makes a process a function of a seed: see [Seeding] and [Step].
package waits

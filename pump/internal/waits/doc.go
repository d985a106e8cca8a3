// Package backoff spreads what many processes do out over time: delays that double, jitter that is
// a hash of what the delay is for and not a random number, waiting that ends with a context, and
// signals between goroutines.
//
// In simulations it also makes a process a function of a seed: see [Seeding] and [Step].
package waits

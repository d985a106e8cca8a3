// Package reduce counts by segment: a [Reducer] keeps a state for each segment that every task
// changes exactly once, whatever crashes.
package reduce

// Package reduce counts by segment: a [Reducer] keeps a state for each segment. Every task changes
// it exactly once, also after a crash.
package reduce
